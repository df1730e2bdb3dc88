"""Runs of LangSmith: how they are brought together, and the messages of their llm runs. Pure."""
