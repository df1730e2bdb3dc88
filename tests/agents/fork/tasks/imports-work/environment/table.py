def parse_csv(text):
    return [line.split(",") for line in text.splitlines()]
