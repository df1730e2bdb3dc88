"""The parameters of every method with their types, and the errors in a task's parameters.

A wrong parameter is an error when the task is loaded. Nothing is guessed, and nothing passes by default.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from agents.compliance.json_shape import schema_problem

Check = Callable[[Any], str | None]
"""Returns the problem of a value; None if it is valid."""

RELATIONS: Final = ("at least", "less than")

MOST_CHARS: Final = 10_000
"""Maximum characters of a phrase or repeated prompt."""

LONGEST_WORD: Final = 200
"""Maximum characters of an IFEval keyword. The time to search for all its prefixes grows with its length."""

MOST_WORDS: Final = 300
"""Maximum words in a list of keywords."""

LANGUAGES: Final = frozenset(
    [
        "af",
        "ar",
        "bg",
        "bn",
        "ca",
        "cs",
        "cy",
        "da",
        "de",
        "el",
        "en",
        "es",
        "et",
        "fa",
        "fi",
        "fr",
        "gu",
        "he",
        "hi",
        "hr",
        "hu",
        "id",
        "it",
        "ja",
        "kn",
        "ko",
        "lt",
        "lv",
        "mk",
        "ml",
        "mr",
        "ne",
        "nl",
        "no",
        "pa",
        "pl",
        "pt",
        "ro",
        "ru",
        "sk",
        "sl",
        "so",
        "sq",
        "sv",
        "sw",
        "ta",
        "te",
        "th",
        "tl",
        "tr",
        "uk",
        "ur",
        "vi",
        "zh-cn",
        "zh-tw",
    ]
)
"""The languages that the detector can return."""


def _count(value: Any) -> str | None:
    return None if type(value) is int and value >= 0 else "expected a whole number that is not negative"


def _place(value: Any) -> str | None:
    return None if type(value) is int and value >= 1 else "expected a whole number of at least 1"


def _text(value: Any) -> str | None:
    if not isinstance(value, str) or not value.strip():
        return "expected a text that is not blank"
    return None if len(value) <= MOST_CHARS else f"expected at most {MOST_CHARS:,} characters"


def _word(value: Any) -> str | None:
    problem = _text(value)
    return problem if problem or len(value) <= LONGEST_WORD else f"expected at most {LONGEST_WORD} characters"


def _words(value: Any) -> str | None:
    problem = _texts(value)
    return problem or next((wrong for each in value if (wrong := _word(each))), None)


def _texts(value: Any) -> str | None:
    if not isinstance(value, list) or not value:
        return "expected a list of texts"
    if len(value) > MOST_WORDS:
        return f"expected at most {MOST_WORDS:,} texts"
    return next((problem for each in value if (problem := _text(each))), None)


def _text_or_texts(value: Any) -> str | None:
    return _text(value) if isinstance(value, str) else _texts(value)


def _letter(value: Any) -> str | None:
    return None if isinstance(value, str) and len(value) == 1 and not value.isspace() else "expected one character"


def _relation(value: Any) -> str | None:
    return None if value in RELATIONS else f"expected one of {', '.join(RELATIONS)}"


def _language(value: Any) -> str | None:
    if isinstance(value, str) and value in LANGUAGES:
        return None
    return "expected a language code that the detector knows, such as en, de or zh-cn"


def _nothing(value: Any) -> str | None:
    return None if value in (None, {}, True) else "takes no parameter"


def _limits(value: Any) -> str | None:
    """Check an object {min?, max?}."""
    return _fields({}, {"min": _count, "max": _count})(value) or _ordered(value)


def _ordered(value: dict[str, Any]) -> str | None:
    if "min" not in value and "max" not in value:
        return "expected min, max or both"
    return "min is over max" if value.get("min", 0) > value.get("max", float("inf")) else None


def _keyword_count(value: Any) -> str | None:
    return _fields({"word": _text}, {"min": _count, "max": _count})(value) or _ordered(value)


def _tools(value: Any) -> str | None:
    def names(given: Any) -> str | None:
        return None if given == [] else _texts(given)

    problem = _fields({}, {"allowed": names, "denied": names})(value)
    return problem or (None if value else "expected allowed, denied or both")


def _schema(value: Any) -> str | None:
    return schema_problem(value)


def _fields(needed: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Return the check of an object with exactly these fields."""
    known = {**needed, **(optional or {})}

    def check(value: Any) -> str | None:
        if value is None and not needed:
            value = {}
        if not isinstance(value, dict):
            return "expected an object"
        for name in value:
            if name not in known:
                expected = f"; expected {', '.join(known)}" if known else ""
                return f"{name}: no such parameter{expected}"
        for name in needed:
            if name not in value:
                return f"{name}: is missing"
        return next((f"{name}: {wrong}" for name, each in value.items() if (wrong := known[name](each))), None)

    return check


def _nth_paragraph(value: Any) -> str | None:
    fields = {"num_paragraphs": _place, "nth_paragraph": _place, "first_word": _text}
    problem = _fields(fields)(value)
    if problem is None and value["nth_paragraph"] > value["num_paragraphs"]:
        return "nth_paragraph: is over num_paragraphs"
    return problem


IFEVAL: Final[Mapping[str, Check]] = {
    "keywords:existence": _fields({"keywords": _words}),
    "keywords:frequency": _fields({"keyword": _word, "frequency": _count, "relation": _relation}),
    "keywords:forbidden_words": _fields({"forbidden_words": _words}),
    "keywords:letter_frequency": _fields({"letter": _letter, "let_frequency": _count, "let_relation": _relation}),
    "language:response_language": _fields({"language": _language}),
    "length_constraints:number_sentences": _fields({"num_sentences": _count, "relation": _relation}),
    "length_constraints:number_paragraphs": _fields({"num_paragraphs": _count}),
    "length_constraints:number_words": _fields({"num_words": _count, "relation": _relation}),
    "length_constraints:nth_paragraph_first_word": _nth_paragraph,
    "detectable_content:number_placeholders": _fields({"num_placeholders": _count}),
    "detectable_content:postscript": _fields({"postscript_marker": _word}),
    "detectable_format:number_bullet_lists": _fields({"num_bullets": _count}),
    "detectable_format:constrained_response": _fields({}),
    "detectable_format:number_highlighted_sections": _fields({"num_highlights": _count}),
    "detectable_format:multiple_sections": _fields({"section_spliter": _word, "num_sections": _count}),
    "detectable_format:json_format": _fields({}),
    "detectable_format:title": _fields({}),
    "combination:two_responses": _fields({}),
    "combination:repeat_prompt": _fields({"prompt_to_repeat": _text}),
    "startend:end_checker": _fields({"end_phrase": _text}),
    "startend:quotation": _fields({}),
    "change_case:capital_word_frequency": _fields({"capital_frequency": _count, "capital_relation": _relation}),
    "change_case:english_capital": _fields({}),
    "change_case:english_lowercase": _fields({}),
    "punctuation:no_comma": _fields({}),
}
"""The parameters by IFEval class."""

SHORT: Final[Mapping[str, Check]] = {
    "format:bullet_count": _count,
    "format:word_count": _limits,
    "format:sentence_count": _limits,
    "format:paragraph_count": _limits,
    "format:max_chars": _count,
    "format:headings_min": _count,
    "format:title": _nothing,
    "format:json": _nothing,
    "format:json_schema": _schema,
    "format:starts_with": _text,
    "format:ends_with": _text,
    "format:quoted": _nothing,
    "format:lowercase": _nothing,
    "format:uppercase": _nothing,
    "format:no_comma": _nothing,
    "content:contains": _text_or_texts,
    "content:excludes": _text_or_texts,
    "content:keyword_count": _keyword_count,
    "content:placeholders_min": _count,
    "style:language": _language,
    "tool:tools": _tools,
}
"""The parameters by short rule."""

METHODS: Final[Mapping[str, Check]] = {**{f"ifeval:{name}": check for name, check in IFEVAL.items()}, **SHORT}
"""The parameters by method."""


def parameter_problem(method: str, arg: Any) -> str | None:
    """Return the problem of a method's parameters; None if they are valid."""
    check = METHODS.get(method)
    if check is None:
        return f"verify_method: {method!r} is no method; see docs/compliance.md for all of them"
    problem = check(arg)
    return None if problem is None else f"arg: {problem}" if ": " not in problem else f"arg.{problem}"
