"""LangSmith runs: merge them and read the messages of llm runs. Pure."""
