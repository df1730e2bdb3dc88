"""Comma-separated values."""


def parse_csv(text: str) -> list[list[str]]:
    rows = []
    for line in text.splitlines():
        fields, rest = [], line
        while rest:
            if rest.startswith('"'):
                end = rest.find('",')
                fields.append(rest[1:end].replace('""', '"') if end > 0 else rest.strip('"'))
                rest = rest[end + 2 :] if end > 0 else ""
            else:
                field, _, rest = rest.partition(",")
                fields.append(field)
        rows.append(fields)
    return rows
