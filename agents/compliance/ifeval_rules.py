"""The 25 classes of IFEval: whether a text follows each, with Google's semantics, in linear time.

Keywords and markers are literal. Every rule returns a finding: whether it holds and, if not, a hint and a position.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from agents.compliance.checked_text import CheckedText

Where = tuple[int, int] | None
"""A half-open range of code points; None: the whole response."""


class Finding(NamedTuple):
    """The result of one rule."""

    holds: bool | None
    """None: unknown."""
    hint: str | None = None
    """The reason why the rule does not hold."""
    where: Where = None
    """The position of the violation."""
    official: bool | None = None
    """The result of Google's check, if it differs."""


HOLDS: Final = Finding(True)

Rule = Callable[[CheckedText, Mapping[str, Any]], Finding]

UNDETECTED: Final = Finding(None, "no language can be detected", None, True)
"""Google passes a text whose language cannot be detected; here the result is unknown."""


def compared(found: int, unit: str, relation: str, needed: int) -> Finding:
    """Return the finding of a counting rule."""
    holds = (
        found >= needed if relation == "at least" else found < needed if relation == "less than" else found == needed
    )
    return HOLDS if holds else Finding(False, f"found {found} {unit}; needs {relation} {needed}")


def _if(holds: bool, hint: str) -> Finding:
    return HOLDS if holds else Finding(False, hint)


# -- keywords --------------------------------------------------------------------------------------------------------------


def _existence(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    missing = [keyword for keyword in arg["keywords"] if not text.has(keyword)]
    return Finding(False, f"missing: {', '.join(missing)}") if missing else HOLDS


def _frequency(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    keyword = arg["keyword"].strip()
    return compared(text.count(keyword), f'occurrences of "{keyword}"', arg["relation"], arg["frequency"])


def _forbidden_words(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    places = {word: text.place_of_word(word) for word in arg["forbidden_words"]}
    found = {word: (place, place + len(word)) for word, place in places.items() if place is not None}
    return Finding(False, f"forbidden: {', '.join(found)}", min(found.values())) if found else HOLDS


def _letter_frequency(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    letter = arg["letter"]
    return compared(text.lower.count(letter.lower()), f'letters "{letter}"', arg["let_relation"], arg["let_frequency"])


# -- language and case -----------------------------------------------------------------------------------------------------


def _response_language(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    return spoken(text, arg["language"])


def spoken(text: CheckedText, language: str) -> Finding:
    """Return whether a text is in this language."""
    found = text.language
    if found is None:
        return UNDETECTED
    return _if(found == language, f"language is {found}; needs {language}")


def _english_capital(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    found = upper_case(text)
    return spoken(text, "en") if found.holds else found


def _english_lowercase(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    found = lower_case(text)
    return spoken(text, "en") if found.holds else found


def upper_case(text: CheckedText) -> Finding:
    """Return whether all letters are capitals and there is at least one."""
    return HOLDS if text.text.isupper() else _first_letter(text.text, lambda char: char.islower() or char.istitle())


def lower_case(text: CheckedText) -> Finding:
    """Return whether no letter is a capital and there is at least one letter."""
    return HOLDS if text.text.islower() else _first_letter(text.text, lambda char: char.isupper() or char.istitle())


def _first_letter(text: str, wrong: Callable[[str], bool]) -> Finding:
    for place, char in enumerate(text):
        if char.isalpha() and wrong(char) and not (char.istitle() and char.isupper() and not wrong(char)):
            return Finding(False, f'"{char}" at char {place}', (place, place + 1))
    return Finding(False, "no letter has a case")


def _capital_word_frequency(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    return compared(text.capital_words, "capital words", arg["capital_relation"], arg["capital_frequency"])


# -- lengths ---------------------------------------------------------------------------------------------------------------

_STARS: Final = re.compile(r"\s?\*\*\*\s?")


def _number_sentences(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    return compared(text.sentences, "sentences", arg["relation"], arg["num_sentences"])


def _number_words(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    return compared(text.words, "words", arg["relation"], arg["num_words"])


def _number_paragraphs(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    parts = _STARS.split(text.text) if "***" in text.text else [text.text]
    found = len(parts)
    for number, part in enumerate(parts):
        if not part.strip():
            if number not in (0, len(parts) - 1):
                return Finding(
                    False, f"paragraph {number + 1} is blank; needs exactly {arg['num_paragraphs']} paragraphs"
                )
            found -= 1
    return compared(found, "paragraphs", "exactly", arg["num_paragraphs"])


def _nth_paragraph_first_word(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    parts = text.text.split("\n\n")
    found, needed, place = sum(1 for part in parts if part.strip()), arg["num_paragraphs"], arg["nth_paragraph"]
    part = parts[place - 1].strip() if place <= found else ""
    word = _first_word(part) if part else ""
    if found != needed:
        return compared(found, "paragraphs", "exactly", needed)
    if part and word == arg["first_word"].lower():
        return HOLDS
    start = sum(len(each) + 2 for each in parts[: place - 1])
    hint = f'paragraph {place} starts with "{word}"; needs "{arg["first_word"]}"'
    return Finding(False, hint, (start, start + len(parts[place - 1])))


def _first_word(part: str) -> str:
    word = part.split(maxsplit=1)[0].lstrip("'").lstrip('"')
    first = re.split("""[.,?!'"]""", word, maxsplit=1)[0]
    return first.lower() if first.isascii() else "".join(map(str.lower, first))  # no final sigma


# -- content ---------------------------------------------------------------------------------------------------------------

_BRACKETS: Final = re.compile(r"\[[^\]]*\]")
_POSTSCRIPTS: Final = {"P.P.S": re.compile(r"p\.\s?p\.\s?s"), "P.S.": re.compile(r"p\.\s?s\.")}


def count_placeholders(text: str) -> int:
    """Count `[...]` on single lines."""
    if "[" not in text or "]" not in text:
        return 0
    # Stop each line at its last closing bracket. Otherwise an open bracket costs a search to the end of the line.
    return sum(len(_BRACKETS.findall(line, 0, line.rfind("]") + 1)) for line in text.split("\n") if "]" in line)


def _number_placeholders(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    return compared(count_placeholders(text.text), "placeholders", "at least", arg["num_placeholders"])


def _postscript(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    marker = arg["postscript_marker"].strip()
    pattern = _POSTSCRIPTS.get(marker)
    found = marker.lower() in text.lower if pattern is None else pattern.search(text.lower) is not None
    return _if(found, f"no postscript {marker}")


# -- formats ---------------------------------------------------------------------------------------------------------------

_HIGHLIGHT: Final = re.compile(r"\*[^\n\*]*\*")
_DOUBLE_HIGHLIGHT: Final = re.compile(r"\*\*[^\n\*]*\*\*")

ANSWERS: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")


def count_bullets(text: str) -> int:
    """Count matches of `^\\s*\\*[^\\*].*$` and `^\\s*-.*$` line by line. The patterns take quadratic time in blank
    lines.
    """
    found, taken = 0, False
    if "*" not in text and "-" not in text:
        return 0
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        start = line.lstrip()
        # For a lone asterisk, the pattern's next character is the line end, so the match includes the next line.
        alone, was_taken, taken = start == "*", taken, False
        if start.startswith("-"):
            found += 1
        elif (
            start.startswith("*")
            and not was_taken
            and not start.startswith("**")
            and not (alone and number == len(lines))
        ):
            found, taken = found + 1, alone
    return found


def _number_bullet_lists(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    return compared(count_bullets(text.text), "bullets", "exactly", arg["num_bullets"])


def _constrained_response(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    return _if(any(answer in text.text for answer in ANSWERS), "none of the three answers")


def _number_highlighted_sections(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    found = 0
    if "*" in text.text:
        found = sum(1 for each in _HIGHLIGHT.findall(text.text) if each.strip("*").strip())
        found += sum(1 for each in _DOUBLE_HIGHLIGHT.findall(text.text) if each[2:-2].strip())
    return compared(found, "highlights", "at least", arg["num_highlights"])


def _multiple_sections(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    splitter = arg["section_spliter"].strip()
    # The whitespace before a section is optional in the original pattern. Leaving it out finds the same sections.
    pattern = rf"{re.escape(splitter)}\s?\d++\s?"
    found = len(re.findall(pattern, text.text)) if splitter in text.text else 0
    return compared(found, f"sections {splitter}", "at least", arg["num_sections"])


def _json_format(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    value = text.stripped
    for fence in ("```json", "```Json", "```JSON", "```"):
        value = value.removeprefix(fence)
    try:
        json.loads(value.removesuffix("```").strip())
    except (ValueError, RecursionError) as error:
        return Finding(False, f"not JSON: {error if isinstance(error, ValueError) else 'nested too deeply'}")
    return HOLDS


def title_of(text: str) -> tuple[int, int] | None:
    """Return the position of the first non-blank `<<title>>`; None without one. A line contains one match at most."""
    if "<<" not in text or ">>" not in text:
        return None
    start = 0
    for line in text.split("\n"):
        first, last = line.find("<<"), line.rfind(">>")
        if 0 <= first <= last - 3 and line[first : last + 2].lstrip("<").rstrip(">").strip():
            return start + first, start + last + 2
        start += len(line) + 1
    return None


def _title(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    return _if(title_of(text.text) is not None, "no <<title>>")


# -- combinations, beginnings and ends -------------------------------------------------------------------------------------


def _two_responses(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    parts = [part.strip() for part in text.text.split("******")]
    said = [part for part in parts if part]
    whole = all(parts[1:-1]) and len(said) == 2 and said[0] != said[1]
    return _if(whole, "needs two different responses")


def _repeat_prompt(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    repeated = text.stripped.lower().startswith(arg["prompt_to_repeat"].strip().lower())
    return _if(repeated, "does not begin with the request")


def _end_checker(text: CheckedText, arg: Mapping[str, Any]) -> Finding:
    phrase = arg["end_phrase"].strip()
    ended = text.stripped.strip('"').lower().endswith(phrase.lower())
    return _if(ended, f'does not end with "{phrase}"')


def quoted(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    """Return whether the whole text is in double quotes."""
    value = text.stripped
    return _if(len(value) > 1 and value[0] == '"' and value[-1] == '"', "not in double quotes")


def no_comma(text: CheckedText, _: Mapping[str, Any]) -> Finding:
    """Return whether there is no comma."""
    place = text.text.find(",")
    return HOLDS if place < 0 else Finding(False, f"comma at char {place}", (place, place + 1))


RULES: Final[Mapping[str, Rule]] = {
    "keywords:existence": _existence,
    "keywords:frequency": _frequency,
    "keywords:forbidden_words": _forbidden_words,
    "keywords:letter_frequency": _letter_frequency,
    "language:response_language": _response_language,
    "length_constraints:number_sentences": _number_sentences,
    "length_constraints:number_paragraphs": _number_paragraphs,
    "length_constraints:number_words": _number_words,
    "length_constraints:nth_paragraph_first_word": _nth_paragraph_first_word,
    "detectable_content:number_placeholders": _number_placeholders,
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": _number_bullet_lists,
    "detectable_format:constrained_response": _constrained_response,
    "detectable_format:number_highlighted_sections": _number_highlighted_sections,
    "detectable_format:multiple_sections": _multiple_sections,
    "detectable_format:json_format": _json_format,
    "detectable_format:title": _title,
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": _repeat_prompt,
    "startend:end_checker": _end_checker,
    "startend:quotation": quoted,
    "change_case:capital_word_frequency": _capital_word_frequency,
    "change_case:english_capital": _english_capital,
    "change_case:english_lowercase": _english_lowercase,
    "punctuation:no_comma": no_comma,
}
"""The rules by IFEval class."""
