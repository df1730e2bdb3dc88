"""Comma-separated values."""


def parse_csv(text: str) -> list[list[str]]:
    return [line.split(",") for line in text.splitlines()]
