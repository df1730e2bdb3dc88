"""Comma-separated values with quoted fields (RFC 4180)."""


def parse_csv(text: str) -> list[list[str]]:
    """The rows of `text`. Raises ValueError, with its line, for a quote that is never closed."""
    rows: list[list[str]] = []
    row: list[str] = []
    field: list[str] = []
    quoted = False
    line = opened = 1
    position = 0
    while position < len(text):
        char = text[position]
        if quoted and text.startswith('""', position):
            field.append('"')
            position += 1
        elif char == '"':
            quoted, opened = not quoted, line
        elif char == "," and not quoted:
            row.append("".join(field))
            field = []
        elif not quoted and (char == "\n" or text.startswith("\r\n", position)):
            rows.append([*row, "".join(field)])
            row, field = [], []
            position += char == "\r"
            line += 1
        else:
            line += char == "\n"
            field.append(char)
        position += 1
    if quoted:
        raise ValueError(f"line {opened}: quote is never closed")
    if row or field:
        rows.append([*row, "".join(field)])
    return rows
