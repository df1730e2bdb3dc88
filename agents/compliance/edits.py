"""Repairs made by code, and parts that a model writes and code inserts. They never insert a placeholder or a list of
keywords.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from schemas.compliance import ConstraintIR

MOST_STARTS: Final = 64
"""Maximum positions in a text where parsing of a JSON value is tried."""

PLACEHOLDER_TITLES: Final = frozenset(
    {"untitled", "title", "your title", "title here", "insert title", "the title", "placeholder"}
)

LONGEST_TITLE: Final = 200
"""Maximum characters of a title. A model that returns the whole text has written no title."""

FEWEST_WORDS_BESIDE: Final = 3
"""Minimum words beside the keywords that make a sentence."""


def patched(constraint: ConstraintIR, text: str) -> str | None:
    """Return the text patched by code; None if no patch applies or the patch changes nothing."""
    patch = _PATCHES.get(constraint.verify_method)
    made = patch(text) if patch else None
    return None if made is None or made == text or not made.strip() else made


def _quoted(text: str) -> str:
    return f'"{text.strip().strip(chr(34))}"'


def _json_value(text: str) -> str | None:
    """Return the single JSON value in a text; None if there is none, or several."""
    found = None
    decoder, at = json.JSONDecoder(), 0
    for _ in range(MOST_STARTS):
        start = next((place for place in range(at, len(text)) if text[place] in "{["), None)
        if start is None:
            return found
        try:
            _, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            at = start + 1
            continue
        if found is not None:
            return None
        found, at = text[start:end], end
    return None


_PATCHES: Final[Mapping[str, Any]] = {
    "ifeval:punctuation:no_comma": lambda text: text.replace(",", ""),
    "format:no_comma": lambda text: text.replace(",", ""),
    "ifeval:change_case:english_lowercase": str.lower,
    "format:lowercase": str.lower,
    "ifeval:change_case:english_capital": str.upper,
    "format:uppercase": str.upper,
    "ifeval:startend:quotation": _quoted,
    "format:quoted": _quoted,
    "ifeval:detectable_format:json_format": _json_value,
    "format:json": _json_value,
}


def placed(constraint: ConstraintIR, text: str) -> str | None:
    """Return the text with the part that the constraint spells out added; None if it spells out none."""
    arg = constraint.parameters
    match constraint.verify_method:
        case "ifeval:combination:repeat_prompt":
            return f"{arg['prompt_to_repeat'].strip()}\n\n{text.strip()}"
        case "ifeval:startend:end_checker":
            return f"{text.rstrip()}\n\n{arg['end_phrase'].strip()}"
        case "format:starts_with":
            return f"{str(constraint.arg).strip()}\n\n{text.strip()}"
        case "format:ends_with":
            return f"{text.rstrip()}\n\n{str(constraint.arg).strip()}"
    return None


class Part(NamedTuple):
    """A part that a model must write."""

    wanted: str
    """The description for the prompt."""
    kind: str
    """One of: title, postscript, sentence."""
    words: tuple[str, ...] = ()
    """The keywords, or the marker of a postscript."""


def part_for(constraint: ConstraintIR, text: str) -> Part | None:
    """Return the part that would repair a constraint; None if no part would."""
    arg = constraint.parameters
    match constraint.verify_method:
        case "ifeval:detectable_format:title" | "format:title":
            return Part("A short title of the text, on one line, without brackets.", "title")
        case "ifeval:detectable_content:postscript":
            marker = arg["postscript_marker"].strip()
            return Part(
                "One sentence that may stand as a postscript under the text, without its marker.",
                "postscript",
                (marker,),
            )
        case "ifeval:keywords:existence":
            missing = _missing(arg["keywords"], text)
        case "content:contains":
            given: Any = constraint.arg
            missing = _missing([given] if isinstance(given, str) else [str(each) for each in given or ()], text)
        case _:
            return None
    named = ", ".join(f'"{word}"' for word in missing)
    return (
        Part(
            f"One or two sentences that go with the text and use these words as they are: {named}.", "sentence", missing
        )
        if missing
        else None
    )


def _missing(words: list[str], text: str) -> tuple[str, ...]:
    lowered = text.lower()
    return tuple(word for word in words if word.lower() not in lowered)


def with_part(part: Part, written: str, text: str) -> str | None:
    """Return the text with a part inserted; None if the part is empty or would only satisfy the checker."""
    written = written.strip()
    if not written:
        return None
    if part.kind == "title":
        return _titled(written.split("\n", 1)[0], text)
    if part.kind == "postscript":
        marker = part.words[0]
        said = re.sub(r"^(?:p\.\s?)+s\.?:?\s*", "", written, flags=re.IGNORECASE)
        return f"{text.rstrip()}\n\n{marker} {said}" if said.strip() else None
    rest = written
    for word in part.words:
        rest = re.sub(re.escape(word), " ", rest, flags=re.IGNORECASE)
    if len(re.findall(r"\w+", rest)) < FEWEST_WORDS_BESIDE:
        return None
    return f"{text.rstrip()}\n\n{written}"


def _titled(line: str, text: str) -> str | None:
    """Return the text under the title in a line; None if the line contains no title."""
    inner = re.search(r"<<([^<>]++)>>", line)
    title = re.sub(r"<++|>++", " ", inner[1] if inner else line).strip().strip("*#\"' ").strip()
    if not title or len(title) > LONGEST_TITLE or title.lower() in PLACEHOLDER_TITLES:
        return None
    return f"<<{title}>>\n\n{text.strip()}"


def is_placeholder_title(text: str) -> bool:
    """Whether the title of a text is a placeholder."""
    return any(found.strip().lower() in PLACEHOLDER_TITLES for found in re.findall(r"<<([^<>\n]++)>>", text))
