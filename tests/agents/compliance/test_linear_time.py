"""No rule takes long on a text of a megabyte, whatever is in it."""

import time

import pytest

from agents.compliance.checked_text import CheckedText
from agents.compliance.ifeval_rules import RULES
from agents.compliance.short_rules import SHORT_RULES
from agents.compliance.stored_semantics import STORED_RULES

MIB = 1024 * 1024

ARGS = {
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
}
SHORT_ARGS = {
    "format:json_schema": {"type": "object"}, "content:contains": "aab", "content:excludes": ["aab", "a"], "format:starts_with": "b",
    "format:ends_with": "b", "content:keyword_count": {"word": "aa", "min": 3}, "tool:tools": {"allowed": []},
}  # fmt: skip
TEXTS = (
    "a", "A", "'", ".", ". ", "!'", "*", "**", "* ", "[", "]", "[]", "<<", "<", ">>", "<<a", "\n", " \n", "\n\n", "- ", "\t", "1", "1 ",
    "{", '{"a":', "P.", "p. ", "A'S ", "N'T. ", "a.) ", '"', "\x1c", "ü", "MCDONALD'S.\n", "#", "# ", ".'\") ",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("piece", TEXTS)
def test_no_rule_takes_two_seconds_on_a_megabyte(piece: str) -> None:
    text = (piece * MIB)[:MIB] + "x"
    for name, rule in RULES.items():
        if name == "language:response_language":
            continue
        began = time.thread_time()
        rule(CheckedText(text), ARGS.get(name, {}))
        assert time.thread_time() - began < 2, name
    for name, short in SHORT_RULES.items():
        if name == "style:language":
            continue
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
