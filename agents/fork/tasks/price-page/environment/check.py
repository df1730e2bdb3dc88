"""The obvious mistakes of page.js."""

import re
import sys
from pathlib import Path

source = Path(__file__).with_name("page.js").read_text()
problems = [
    why
    for why, pattern in (
        ("#plans is never filled", r"plans"),
        ("#yearly is never listened to", r"yearly"),
        ("no price of a year", r"/ year"),
        ("no badge", r"Most popular"),
    )
    if not re.search(pattern, source)
]
if re.search(r"innerHTML\s*\+?=\s*[^\"'\s]", source):
    problems.append("names are written as HTML")
print("\n".join(problems) or "ok")
sys.exit(bool(problems))
