"""Secrets that only their name gives away: `password = "..."`, `API_KEY=...`, `"token": "..."`, `--password ...`.

Decides by the name and the value together. The name must be that of a secret (`db_password`, `apiKey`), not of a value
about one (`token_count`, `secret_name`, `next_page_token`). The value must be written out (in quotes, in an environment
file, on a command line) or be unlikely as code, and must not be a word, a placeholder or a template: `password =
get_password()`, `token = None` and `api_key: str` stay unchanged.
"""

import re
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from agents.redaction.secret_shapes import Rule, Span, after_escape, end_of, is_placeholder, random_length


class SecretName(Enum):
    """The kinds of values that names promise; the less a name promises, the more random the value must look."""

    PASSWORD = "password"  # noqa: S105 - a name, as is everything here
    SECRET = "secret"  # noqa: S105
    TOKEN = "token"  # noqa: S105


_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_PASSWORDS = frozenset({"password", "passwords", "passwd", "passphrase", "pwd", "userpassword", "dbpassword", "pgpassword",
                        "rootpassword", "passcode", "sshpass"})  # fmt: skip
_REDIS = ["rediscli", "auth"]
"""The variable in which redis-cli expects a password."""
_SECRETS = frozenset({"secret", "secrets", "credential", "credentials", "apikey", "apikeys", "secretkey", "accesskey",
                      "privatekey", "authkey", "clientsecret", "appsecret"})  # fmt: skip
_TOKENS = frozenset({"token", "authtoken", "accesstoken", "apitoken", "refreshtoken", "bearertoken", "sessiontoken"})
_KEY_OWNERS = frozenset({"api", "access", "secret", "private", "auth", "account", "master", "encryption", "signing", "client",
                         "service", "app", "application", "shared", "subscription", "storage", "hmac", "jwt"})  # fmt: skip
_ABOUT = frozenset({
    "arn", "at", "bucket", "budget", "class", "cost", "count", "counts", "created", "date", "digest", "dir", "endpoint", "env",
    "error", "expires", "expiry", "expiration", "field", "file", "fingerprint", "format", "hash", "help", "hint", "id", "ids",
    "idx", "index", "input", "label", "len", "length", "limit", "list", "loader", "manager", "max", "message", "min", "name",
    "names", "path", "pattern", "placeholder", "policy", "prefix", "price", "provider", "rate", "ref", "regex", "reset",
    "rotation", "sha", "size", "status", "stdin", "store", "suffix", "title", "ttl", "type", "types", "updated", "uri", "url", "usage",
    "var", "version",
})  # fmt: skip
"""Last words of names that are about a secret and do not contain one."""
_OTHER_TOKENS = frozenset({
    "begin", "bos", "cancel", "cancellation", "cls", "continuation", "delimiter", "end", "eos", "first", "image", "input", "key", "last",
    "mask", "max", "min", "n", "next", "num", "output", "pad", "page", "per", "prev", "previous", "prompt", "sep", "special",
    "start", "stop", "sub", "sync", "total", "unk", "word",
})  # fmt: skip
"""The word before `token` in names of language-model tokens and cursors."""


@lru_cache(maxsize=4096)
def secret_name(name: str) -> SecretName | None:
    """The kind of secret in a variable, field or option of this name; None if it has none."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while words and words[-1].isdigit():
        words.pop()
    if not words or words[-1] in _ABOUT:
        return None
    if not _PASSWORDS.isdisjoint(words) or (len(words) > 1 and words[-1] == "pass") or words == _REDIS:
        return SecretName.PASSWORD
    pairs = list(pairwise(words))
    if not _SECRETS.isdisjoint(words) or any(word == "key" and owner in _KEY_OWNERS for owner, word in pairs):
        return SecretName.SECRET
    if any(word == "token" and other in _OTHER_TOKENS for other, word in pairs):
        return None
    return SecretName.TOKEN if not _TOKENS.isdisjoint(words) or words == ["auth"] else None


_WEAK_SECRET = re.compile(r"[A-Za-z]{5,}[0-9]{3,}")
_SYMBOL = re.compile(r"[!@#$%^&*()+=?~]")
_LONG_WORD = re.compile(r"[a-z]{20,}")


def looks_secret(value: str, name: SecretName, *, written_out: bool = True) -> bool:
    """Whether this is a secret and not a word, a placeholder, a template or code.

    `written_out`: the value is a literal (quoted, or in a place where everything is), so that even a weak one counts if
    the name is that of a password.
    """
    if len(value) < 6 or not value.isprintable() or " " in value or is_placeholder(value):
        return False
    if random_length(value) >= (12 if name is SecretName.TOKEN else 8):
        return True
    if not written_out:
        return False
    if len(value) >= 16 and len(_SYMBOL.findall(value)) >= 4 and any(map(str.isdigit, value)):
        return True
    if name is SecretName.PASSWORD:
        has_letter = any(map(str.isalpha, value))
        has_digit = any(map(str.isdigit, value))
        has_symbol = len(value) >= 8 and any(not (c.isalnum() or c in "_-./:\\,()[]|") for c in value)
        is_path = value[0] in "/~." and "/" in value
        return not is_path and (
            (has_letter and (has_digit or has_symbol)) or has_digit or bool(_LONG_WORD.fullmatch(value))
        )
    return name is SecretName.SECRET and len(value) >= 10 and bool(_WEAK_SECRET.fullmatch(value))


_LONGEST_NAME = 40
_LONGEST_LOOK = 64
"""Characters of a value that are examined; the rest of a secret is removed with them."""
_ASSIGNMENT = re.compile(
    r"\"?[A-Za-z0-9_\-]{3,48}+"
    r"(?P<close>\\{0,8}[\"'`]?[ ]?\]?\)?)"
    r"(?:[ ]{0,2}:[ ]{0,2}[A-Za-z][\w.\[\], |]{0,40}?(?=[ ]{0,2}=[^=]))?"  # a type annotation before the value
    r"(?P<sep>,?[ ]{0,4}\\{0,8}\"?value\\{0,8}\"?[ ]?[=:][ ]?|[ \t]{0,8}(?:=>|:=|={1,3}|!=|:|,|>)[ \t]{0,8}"
    r"|[ ]is:?[ ]|[ ]{1,2})"
    r"(?:[bBrRuUfF]{0,2}(?P<quote>[\"'`])(?P<quoted>(?:(?!(?P=quote))[^\\\s]|\\[^\s]){4,64}+)"
    r"|\\{1,8}[\"'](?P<escaped>(?:[^\"'\\\s]|\\{2,8}[^\"'\\\s]){4,64}+)"
    r"|(?P<bare>(?:[^\s\"'`,;<>()\[\]{}&|\\]|&(?!\w{1,32}=)){4,64}+))"
)
_MORE = {
    "quoted": re.compile(r"[^\s\"'`\\]*"),
    "escaped": re.compile(r"[^\s\"'\\]*"),
    "bare": re.compile(r"[^\s\"'`,;<>()\[\]{}&|\\]*"),
}
_CODE = re.compile(r"\A[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+\Z|\A0x|[kK]ey|[tT]oken|[sS]ecret|[pP]assw")
"""An attribute, or the name of a variable with a secret."""
_NETRC = re.compile(r"login[ \t]+\S{1,64}[ \t]+\Z")
_ODD_PASSWORD = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])(?=.*[!@#$%^&*+?~=])[^$@&*].{7,}")
"""Letters, digits and symbols: no expression that is commonly written without a space."""
_PLAIN_PASSWORD = re.compile(r"(?!.*(?:pass|pw))[A-Za-z]{3,}[0-9]{1,6}[!@#$%^&*?]{0,3}", re.IGNORECASE)


def _assignment(text: str, at: int, floor: int) -> Span | None:
    found = _ASSIGNMENT.match(text, at)
    if found is None:
        return None
    start = _name_start(text, at, floor)
    name = text[start : found.start("close")].strip('"')
    kind = secret_name(name)
    if kind is None:
        return None
    group = "quoted" if found["quoted"] else "escaped" if found["escaped"] else "bare"
    value, end = found[group], found.end(group)
    closed = group == "bare" or text[end : end + 1] in {found["quote"], "\\"} or len(value) == _LONGEST_LOOK
    if not closed or not _separates(text, found, name, start, group):
        return None
    if group == "bare":
        written_out = _is_written_out(text, found, name, start, kind)
        if not written_out and _CODE.search(value):
            return None
    else:
        written_out = found["sep"].strip() != ","
    if not looks_secret(value, kind, written_out=written_out):
        return None
    if len(value) == _LONGEST_LOOK:
        end = end_of(_MORE[group], text, end)
    elif group == "bare":
        end = found.start(group) + len(value.rstrip(".:"))
    return found.start(group), end


def _name_start(text: str, at: int, floor: int) -> int:
    """The start of the name that contains the anchor."""
    start, first = at, max(floor, at - _LONGEST_NAME)
    while start > first and (text[start - 1].isalnum() or text[start - 1] in "_-"):
        start -= 1
    return min(at, after_escape(text, start))


def _separates(text: str, found: re.Match[str], name: str, start: int, group: str) -> bool:
    """Whether the text between name and value assigns the value to the name."""
    separator = found["sep"].strip(" \t")
    if group == "bare":
        following = text[found.end("bare") : found.end("bare") + 2]
        if separator == ">":
            return following == "</"
        if separator == "," or following[:1] in {"(", "["}:
            return False
    if separator == "," and not found["close"].strip("\\ ])"):
        return False  # f(password, "..."): the next argument, not the value of a name
    if separator == "":
        return name.startswith("--") or _NETRC.search(text, max(0, start - 80), start) is not None
    return separator != ">" or group == "bare"


def _is_written_out(text: str, found: re.Match[str], name: str, start: int, kind: SecretName) -> bool:
    """Whether an unquoted value is a literal: on a command line, in an environment file, in a query or in prose."""
    separator = found["sep"]
    if name.startswith("--") or separator.strip(" \t") in {"", ">"} or text[start - 1 : start] in {"?", "&"}:
        return True
    if separator == "=" and name.isupper():
        return True
    value = found["bare"].rstrip(".:")
    if kind is SecretName.PASSWORD and _ODD_PASSWORD.fullmatch(value):
        return True
    plain = kind is SecretName.PASSWORD and _PLAIN_PASSWORD.fullmatch(value) is not None
    return plain and (separator == "=" or separator.strip(" \t") in {":", "is", "is:"})


def _named(words: str, anchors: str) -> Rule:
    """A rule for names that contain one of these words; the anchors leave out letters that may be in upper or lower
    case.
    """
    shape = (
        rf"(?i-u:{words})[0-9A-Za-z_-]{{0,40}}(?:[\\\"'`\]) ]{{0,8}}[:=,>]|[\\\"', ]{{1,6}}value| is:? )"
        rf"|--[A-Za-z-]{{0,24}}(?:{words})[A-Za-z-]{{0,16}} |login[ \t]"
    )
    return Rule("assigned_secret", tuple(anchors.split()), _assignment, shape=shape)


ASSIGNMENTS: tuple[Rule, ...] = (
    _named(
        "passw|passphrase|pwd|_pass|credential",
        "assword ASSWORD asswd ASSWD assphrase ASSPHRASE pwd PWD _pass _PASS redential REDENTIAL",
    ),
    Rule("assigned_secret", ("SSHPASS", "REDISCLI_AUTH"), _assignment),
    _named('secret|"auth', 'ecret ECRET "auth'),
    _named("token", "oken OKEN"),
    _named("key", "key KEY Key"),
)
