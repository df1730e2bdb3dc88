"""Language detection by langdetect with seed 0: the same answer on every text and in every process."""

from functools import cache, lru_cache
from typing import Any

from schemas.extras import needs


class LanguageError(Exception):
    """No language can be told."""


@cache
def _detector() -> Any:
    with needs("language", "detecting a text's language"):
        import langdetect

    langdetect.DetectorFactory.seed = 0
    return langdetect


@lru_cache(maxsize=256)
def detected_language(text: str) -> str | None:
    """Return the code of the language; None where there is nothing to tell it by."""
    langdetect = _detector()
    try:
        found: str = langdetect.detect(text)
    except langdetect.LangDetectException:
        return None
    return found
