"""The rules that made wasmagent's stored records (`wasmagent`): 15 classes. They serve only to verify those records
again.

They differ from `ifeval/1` in words, sentences, keywords, letters, highlights, bullets, titles, placeholders, the
repeated prompt, lower case and languages. Positions count UTF-16 units; hints are the ones in the records.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.compliance import TaskSpec

Hint = str | None
StoredRule = Callable[[str, Mapping[str, Any]], Hint]
"""Returns the hint of a violation; None if the text follows the rule."""

_WORD: Final = re.compile(r"[^\W_]+")
_SENTENCE: Final = re.compile(r"(?<![.!?])[.!?]++(?=\s|$)")
_HIGHLIGHT: Final = re.compile(r"\*\*[^*\n]+?\*\*|\*[^*\n]+?\*")
_BULLET: Final = re.compile(r"^[^\S\n]*+[*-]\s++\S", re.MULTILINE)
_TITLE: Final = re.compile(r"<<[^<>\n]++>>")
_PLACEHOLDER: Final = re.compile(r"\[[^\[\]\n]++\]")
_CAPITAL: Final = re.compile(r"[A-Z]")

_SCRIPTS: Final = {
    "en": re.compile(r"[A-Za-z]"),
    "zh": re.compile(r"[\u4e00-\u9fff]"),
    "ja": re.compile(r"[\u3040-\u30ff]"),
    "ko": re.compile(r"[\uac00-\ud7af]"),
    "ar": re.compile(r"[\u0600-\u06ff]"),
    "ru": re.compile(r"[\u0400-\u04ff]"),
    "hi": re.compile(r"[\u0900-\u097f]"),
    "bn": re.compile(r"[\u0980-\u09ff]"),
    "kn": re.compile(r"[\u0c80-\u0cff]"),
    "ta": re.compile(r"[\u0b80-\u0bff]"),
    "he": re.compile(r"[\u0590-\u05ff]"),
    "th": re.compile(r"[\u0e00-\u0e7f]"),
}


def _units(text: str, end: int) -> int:
    """Return a position in UTF-16 units."""
    return end + sum(1 for char in text[:end] if char > "\uffff")


def _relation(found: int, unit: str, relation: str, needed: int) -> Hint:
    holds, sign = (found >= needed, "≥") if relation == "at least" else (found < needed, "<")
    return None if holds else f"response has {found} {unit}; requires {sign}{needed}"


def _word(word: str) -> "re.Pattern[str]":
    return re.compile(rf"\b{re.escape(word)}\b", re.IGNORECASE | re.ASCII)


def _no_comma(text: str, _: Mapping[str, Any]) -> Hint:
    place = text.find(",")
    if place < 0:
        return None
    return f"response contains a comma at char {_units(text, place)} (IFEval punctuation:no_comma forbids commas)"


def _existence(text: str, arg: Mapping[str, Any]) -> Hint:
    missing = [each for each in arg["keywords"] if not _word(each).search(text)]
    return f"response is missing required keyword(s): {', '.join(missing)}" if missing else None


def _frequency(text: str, arg: Mapping[str, Any]) -> Hint:
    found, keyword = len(_word(arg["keyword"]).findall(text)), arg["keyword"]
    return _relation(found, f'occurrence(s) of "{keyword}"', arg["relation"], arg["frequency"])


def _forbidden_words(text: str, arg: Mapping[str, Any]) -> Hint:
    for word in arg["forbidden_words"]:
        found = _word(word).search(text)
        if found:
            return f'response contains forbidden word "{word}" at char {_units(text, found.start())}'
    return None


def _letter_frequency(text: str, arg: Mapping[str, Any]) -> Hint:
    found, letter = text.count(arg["letter"]), arg["letter"]
    return _relation(found, f'occurrence(s) of letter "{letter}"', arg["let_relation"], arg["let_frequency"])


def _number_words(text: str, arg: Mapping[str, Any]) -> Hint:
    return _relation(len(_WORD.findall(text)), "words", arg["relation"], arg["num_words"])


def _number_sentences(text: str, arg: Mapping[str, Any]) -> Hint:
    return _relation(len(_SENTENCE.findall(text.strip())), "sentences", arg["relation"], arg["num_sentences"])


def _highlights(text: str, arg: Mapping[str, Any]) -> Hint:
    return _relation(len(_HIGHLIGHT.findall(text)), "highlighted section(s)", "at least", arg["num_highlights"])


def _placeholders(text: str, arg: Mapping[str, Any]) -> Hint:
    found = len(_PLACEHOLDER.findall(text)) if "]" in text else 0
    return _relation(found, "placeholder(s)", "at least", arg["num_placeholders"])


def _bullets(text: str, arg: Mapping[str, Any]) -> Hint:
    found, needed = len(_BULLET.findall(text)), arg["num_bullets"]
    return None if found == needed else f"response has {found} bullet(s); IFEval requires exactly {needed}"


def _title(text: str, _: Mapping[str, Any]) -> Hint:
    return None if _TITLE.search(text) else "response is missing a title wrapped in <<…>>"


def _repeat_prompt(text: str, arg: Mapping[str, Any]) -> Hint:
    prompt = arg["prompt_to_repeat"]
    units = _units(prompt, len(prompt))
    return (
        None
        if text.startswith(prompt)
        else f"response does not begin with the verbatim prompt (first {units} chars don't match)"
    )


def _quotation(text: str, _: Mapping[str, Any]) -> Hint:
    value = text.strip()
    held = len(value) > 1 and value[0] == '"' and value[-1] == '"'
    return None if held else 'response must be wrapped in double quotes (")'


def _lowercase(text: str, _: Mapping[str, Any]) -> Hint:
    found = _CAPITAL.search(text)
    return found and f'response contains uppercase letter "{found[0]}" at char {_units(text, found.start())}'


def _language(text: str, arg: Mapping[str, Any]) -> Hint:
    counts = {code: len(script.findall(text)) for code, script in _SCRIPTS.items()}
    found = max(counts, key=lambda code: counts[code]) if any(counts.values()) else "unknown"
    needed = arg["language"]
    if found == needed:
        return None
    return f"expected response language={needed}, detected={found} (script heuristic)"


STORED_RULES: Final[Mapping[str, StoredRule]] = {
    "punctuation:no_comma": _no_comma,
    "length_constraints:number_words": _number_words,
    "length_constraints:number_sentences": _number_sentences,
    "keywords:forbidden_words": _forbidden_words,
    "keywords:existence": _existence,
    "keywords:frequency": _frequency,
    "keywords:letter_frequency": _letter_frequency,
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:number_bullet_lists": _bullets,
    "detectable_format:title": _title,
    "detectable_content:number_placeholders": _placeholders,
    "combination:repeat_prompt": _repeat_prompt,
    "startend:quotation": _quotation,
    "change_case:english_lowercase": _lowercase,
    "language:response_language": _language,
}
"""The rules by class."""


def verify_stored(spec: TaskSpec, text: str) -> list[tuple[str, Hint]] | None:
    """Return (constraint id, hint or None) in spec order; None if a constraint is not of a stored class."""
    methods = [each.verify_method.removeprefix("ifeval:") for each in spec.constraints]
    if any(method not in STORED_RULES for method in methods):
        return None
    return [
        (each.id, STORED_RULES[method](text, each.parameters))
        for each, method in zip(spec.constraints, methods, strict=True)
    ]
