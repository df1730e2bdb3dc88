from agents.ranking.newton import Way

SOURCE: str
fit: Way
