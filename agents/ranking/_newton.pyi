from agents.ranking.newton import Way

fit: Way
