"""No rule takes long on a text of a megabyte, whatever is in it."""

import time
from typing import Any

import pytest

from agents.compliance.checked_text import CheckedText
from agents.compliance.ifeval_rules import RULES
from agents.compliance.method_parameters import parameter_problem
from agents.compliance.short_rules import SHORT_RULES
from agents.compliance.stored_semantics import STORED_RULES

MIB = 1024 * 1024

ARGS: dict[str, dict[str, Any]] = {
    "keywords:existence": {"keywords": ["needle", "a" * 50]},
    "keywords:frequency": {"keyword": "aab", "frequency": 3, "relation": "at least"},
    "keywords:forbidden_words": {"forbidden_words": ["aab", "((((", "a*"]},
    "keywords:letter_frequency": {"letter": "a", "let_frequency": 3, "let_relation": "at least"},
    "length_constraints:number_sentences": {"num_sentences": 3, "relation": "at least"},
    "length_constraints:number_paragraphs": {"num_paragraphs": 3},
    "length_constraints:number_words": {"num_words": 3, "relation": "at least"},
    "length_constraints:nth_paragraph_first_word": {"num_paragraphs": 3, "nth_paragraph": 2, "first_word": "a"},
    "detectable_content:number_placeholders": {"num_placeholders": 3},
    "detectable_content:postscript": {"postscript_marker": "P.S."},
    "detectable_format:number_bullet_lists": {"num_bullets": 3},
    "detectable_format:number_highlighted_sections": {"num_highlights": 3},
    "detectable_format:multiple_sections": {"section_spliter": "1", "num_sections": 3},
    "combination:repeat_prompt": {"prompt_to_repeat": "a"},
    "startend:end_checker": {"end_phrase": "a"},
    "change_case:capital_word_frequency": {"capital_frequency": 3, "capital_relation": "at least"},
    "language:response_language": {"language": "en"},
}
SHORT_ARGS = {
    "format:json_schema": {"type": "object"}, "content:contains": "aab", "content:excludes": ["aab", "a"], "format:starts_with": "b",
    "format:ends_with": "b", "content:keyword_count": {"word": "aa", "min": 3}, "tool:tools": {"allowed": []},
}  # fmt: skip
TEXTS = (
    "a", "A", "'", ".", ". ", "!'", "*", "**", "* ", "[", "]", "[]", "<<", "<", ">>", "<<a", "\n", " \n", "\n\n", "- ", "\t", "1", "1 ",
    "{", '{"a":', "http://", "a@", "\u0e01", "\u6f22", "P.", "p. ", "A'S ", "N'T. ", "a.) ", '"', "\x1c", "ü", "MCDONALD'S.\n", "#", "# ",
    ".'\") ",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("piece", TEXTS)
def test_no_rule_takes_two_seconds_on_a_megabyte(piece: str) -> None:
    text = (piece * MIB)[:MIB] + "x"
    assert CheckedText("Profiles are loaded once.").language == "en"
    for name, rule in RULES.items():
        began = time.thread_time()
        rule(CheckedText(text), ARGS.get(name, {}))
        assert time.thread_time() - began < 2, name
    for name, short in SHORT_RULES.items():
        began = time.thread_time()
        short(
            CheckedText(text),
            SHORT_ARGS.get(name, {"min": 3} if name.endswith("_count") and "bullet" not in name else 3),
            (),
        )
        assert time.thread_time() - began < 2, name
    for name, stored in STORED_RULES.items():
        began = time.thread_time()
        stored(text, ARGS.get(name, {"language": "en"}))
        assert time.thread_time() - began < 2, name


CRAFTED: tuple[tuple[str, str, object], ...] = (
    ("keywords:forbidden_words", "-ab" * (MIB // 3), {"forbidden_words": ["-ab" * 65 + "-a"]}),
    ("keywords:forbidden_words", "a " * (MIB // 2) + "a " * 90 + "cx", {"forbidden_words": ["a " * 90 + "c"]}),
    ("keywords:existence", "é" * (MIB // 2), {"keywords": ["é" * 199 + "b"]}),
    ("keywords:existence", "\u212a" + "a b " * (MIB // 4), {"keywords": [f"k{number}z" for number in range(100)]}),
    (
        "length_constraints:number_sentences",
        "1" * (MIB // 2) + "(" + "1" * (MIB // 8) + ". x",
        {"num_sentences": 2, "relation": "at least"},
    ),
    ("content:excludes", "w " * (MIB // 2) + " ".join(f"w{n}" for n in range(100)), [f"w{n}" for n in range(100)]),
    ("format:json_schema", "[" + "499," * (MIB // 4) + "1]", {"items": {"enum": list(range(200, 500))}}),
)
"""Tasks and texts of a megabyte, each made for one rule."""


@pytest.mark.parametrize(("name", "text", "arg"), CRAFTED)
def test_a_task_and_a_text_made_for_each_other_take_no_two_seconds(name: str, text: str, arg: object) -> None:
    assert parameter_problem(f"ifeval:{name}" if name in RULES else name, arg) is None
    began = time.thread_time()
    if name in RULES:
        assert isinstance(arg, dict)
        RULES[name](CheckedText(text), arg)
    else:
        SHORT_RULES[name](CheckedText(text), arg, ())
    assert time.thread_time() - began < 2
