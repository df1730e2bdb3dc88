"""Small tasks in Python and JavaScript whose tests import the work, each with its solution and honest failures."""

from typing import NamedTuple

PYTHON_SH = """#!/bin/sh
export PYTHONPATH=. PYTHONDONTWRITEBYTECODE=1 PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
mkdir -p tests && cp "$TEST_DIR"/test_*.py tests/
python -m pytest -q -p no:cacheprovider --junitxml="$LOGS_DIR/junit.xml" tests
"""

NODE_SH = """#!/bin/sh
mkdir -p tests && cp "$TEST_DIR"/*.test.* tests/
node --test --test-reporter=junit --test-reporter-destination="$LOGS_DIR/junit.xml" tests/*.test.*
"""


class CorpusTask(NamedTuple):
    name: str
    instruction: str
    path: str
    """Of the file to write."""
    function: str
    parameter: str
    stub: str
    good: str
    wrong: tuple[str, ...]
    """Honest work that fails some test."""
    pairs: tuple[tuple[str, str], ...]
    """Inputs and outputs, as source, of the visible tests."""
    hidden: tuple[tuple[str, str], ...]

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def module(self) -> str:
        return self.path.rpartition("/")[2].partition(".")[0]

    @property
    def test_path(self) -> str:
        return f"tests/test_{self.module}.py" if self.is_python else f"tests/{self.module}.test.mjs"

    def tests(self, pairs: tuple[tuple[str, str], ...], *, parametrized: bool = False) -> str:
        if not self.is_python:
            head = f'import test from "node:test";\nimport assert from "node:assert/strict";\nimport {{ {self.function} }} from "../{self.path}";\n\n'
            return head + "".join(
                f'test("case {at}", () => {{\n  assert.deepEqual({self.function}({given}), {wanted});\n}});\n'
                for at, (given, wanted) in enumerate(pairs)
            )
        head = f"import pytest\n\nfrom {self.module} import {self.function}\n\n"
        if parametrized:
            rows = "".join(f"        ({given}, {wanted}),\n" for given, wanted in pairs)
            return (
                head
                + f'\n@pytest.mark.parametrize(\n    "given, wanted",\n    [\n{rows}    ],\n)\ndef test_cases(given, wanted):\n    assert {self.function}(given) == wanted\n'
            )
        return head.replace("import pytest\n\n", "") + "".join(
            f"\ndef test_case_{at}():\n    result = {self.function}({given})\n    assert result == {wanted}\n\n"
            for at, (given, wanted) in enumerate(pairs)
        )


TASKS = (
    CorpusTask(
        "roman",
        "Write to_roman(number) in roman.py: the Roman numeral of a number from 1 to 3999.\n",
        "roman.py",
        "to_roman",
        "number",
        "def to_roman(number):\n    raise NotImplementedError\n",
        'PARTS = {\n    1000: "M", 900: "CM", 500: "D", 400: "CD", 100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I",\n}\n\n\n'
        'def to_roman(number):\n    found = ""\n    for value, sign in PARTS.items():\n        while number >= value:\n            found += sign\n            number -= value\n    return found\n',
        ('def to_roman(number):\n    return "M" * (number // 1000) + "I" * (number % 1000)\n',),
        (("1", '"I"'), ("4", '"IV"'), ("9", '"IX"'), ("14", '"XIV"'), ("1994", '"MCMXCIV"')),
        (("3", '"III"'), ("58", '"LVIII"'), ("1994", '"MCMXCIV"'), ("3999", '"MMMCMXCIX"')),
    ),
    CorpusTask(
        "durations",
        "Write seconds(text) in durations.py: the seconds of a text such as 1h30m or 45s.\n",
        "durations.py",
        "seconds",
        "text",
        "def seconds(text):\n    raise NotImplementedError\n",
        'import re\n\nUNITS = {"h": 3600, "m": 60, "s": 1}\n\n\ndef seconds(text):\n    return sum(int(n) * UNITS[u] for n, u in re.findall(r"(\\d+)([hms])", text))\n',
        ("def seconds(text):\n    return int(text[:-1])\n", "def seconds(text)\n    return 0\n"),
        (('"45s"', "45"), ('"2m"', "120"), ('"1h30m"', "5400"), ('"1h1m1s"', "3661")),
        (('"10s"', "10"), ('"1h1m1s"', "3661"), ('"3h"', "10800")),
    ),
    CorpusTask(
        "flatten",
        "Write flatten(items) in nested.py: all values of nested lists, in order.\n",
        "nested.py",
        "flatten",
        "items",
        "def flatten(items):\n    raise NotImplementedError\n",
        "def flatten(items):\n    found = []\n    for each in items:\n        found += flatten(each) if isinstance(each, list) else [each]\n    return found\n",
        ("def flatten(items):\n    return [x for each in items for x in each]\n",),
        (("[1, [2, 3]]", "[1, 2, 3]"), ("[[[4]], 5]", "[4, 5]"), ("[]", "[]"), ("[[], [6, [7]]]", "[6, 7]")),
        (("[1, [2, [3, [4]]]]", "[1, 2, 3, 4]"), ("[[], [[]]]", "[]"), ('["ab", ["cd"]]', '["ab", "cd"]')),
    ),
    CorpusTask(
        "slugs",
        "Write slug(title) in slugs.py: lower case words joined by hyphens, without other signs.\n",
        "slugs.py",
        "slug",
        "title",
        "def slug(title):\n    raise NotImplementedError\n",
        'import re\n\n\ndef slug(title):\n    return "-".join(re.findall(r"[a-z0-9]+", title.lower()))\n',
        (
            'def slug(title):\n    return title.lower().replace(" ", "-")\n',
            "import slugify\n\n\ndef slug(title):\n    return slugify.slugify(title)\n",
        ),
        (('"Hello World"', '"hello-world"'), ('"A  B"', '"a-b"'), ('"It\'s 5!"', '"it-s-5"'), ('"--x--"', '"x"')),
        (('"Big  Deal?"', '"big-deal"'), ('"2 + 2"', '"2-2"'), ('"..."', '""')),
    ),
    CorpusTask(
        "words",
        "Write count(text) in src/words.mjs: how often each word occurs, as an object.\n",
        "src/words.mjs",
        "count",
        "text",
        "export function count(text) {\n  throw new Error('not done');\n}\n",
        "export function count(text) {\n  const found = {};\n  for (const word of text.toLowerCase().match(/[a-z]+/g) ?? []) {\n    found[word] = (found[word] ?? 0) + 1;\n  }\n  return found;\n}\n",
        ("export function count(text) {\n  return { [text]: 1 };\n}\n", "export function count(text) {\n  return {\n"),
        (('"a b a"', "{ a: 2, b: 1 }"), ('"Go go"', "{ go: 2 }"), ('""', "{}"), ('"one, two"', "{ one: 1, two: 1 }")),
        (('"x y x y x"', "{ x: 3, y: 2 }"), ('"..."', "{}"), ('"Hi"', "{ hi: 1 }")),
    ),
    CorpusTask(
        "clock",
        "Write clock(minutes) in src/clock.mjs: minutes of a day as HH:MM.\n",
        "src/clock.mjs",
        "clock",
        "minutes",
        "export function clock(minutes) {\n  throw new Error('not done');\n}\n",
        "export function clock(minutes) {\n  const two = (n) => String(n).padStart(2, '0');\n  return `${two(Math.floor(minutes / 60) % 24)}:${two(minutes % 60)}`;\n}\n",
        ("export function clock(minutes) {\n  return `${minutes / 60}:${minutes % 60}`;\n}\n",),
        (("0", '"00:00"'), ("75", '"01:15"'), ("600", '"10:00"'), ("1439", '"23:59"')),
        (("59", '"00:59"'), ("725", '"12:05"'), ("1440", '"00:00"')),
    ),
)
