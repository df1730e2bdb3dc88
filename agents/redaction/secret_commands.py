"""Passwords on command lines: `docker login -p ...`, `mysql -p...`, `sshpass -p ...`, `curl -u user:...`, `redis-cli -a ...`.

A short option means something else to every program (`ssh -p 22`, `mkdir -p`, `docker run -p 80:80`), so the program
decides which of its options has a password. A command ends at a shell separator, or at the end of its quotes.
Placeholders to be filled in later (`$PASSWORD`, `<password>`, `{password}`) and words that only name a password (`-p
PASSWORD`) stay. Commands are read as text and as lists of words (`["mysql", "-p..."]`).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from agents.redaction.secret_shapes import Accept, Rule, Span, is_placeholder, nothing_until, random_length, starts_word

_KIND = "command_password"
_MOST_WORDS = 48
"""Words of a command that are examined."""

_TEMPLATE = re.compile(
    r"\A\${1,2}[A-Za-z_][\w:.\[\]>-]*\Z|\{[0-9]?\}|\\u003c|\A[.+].*[.+]\Z|\A[-@`]|\A[x*.]+\Z"
    r"|\A(?:[0-9.]{7,15}:)?[0-9]{1,5}:[0-9]{1,5}(?:/\w+)?\Z",  # ports, which other programs also take with -p
    re.IGNORECASE,
)
_NAME = re.compile(
    r"(?:[a-z0-9]+[_-]){0,4}(?:pass(?:word|wd|phrase|code)?|pwd|pw|secret|token|(?:api[_-]?)?key)", re.IGNORECASE
)


def _is_password(value: str) -> bool:
    written_out = len(value) >= 3 and not _TEMPLATE.search(value) and not is_placeholder(value)
    return written_out and _NAME.fullmatch(value) is None


def _is_pair(value: str) -> bool:
    """`user:password`, or a token in the place of the user."""
    user, colon, password = value.partition(":")
    if password:
        return _is_password(password)
    return bool(colon) and random_length(user) >= 12 and not is_placeholder(user)


class _Program(NamedTuple):
    """A program that takes passwords as arguments."""

    anchor: str
    name: str
    """The expected text at the anchor: patterns, as are the others."""
    joined: str
    """Options with the password in the same word."""
    apart: str = r"(?!)"
    """Options with the password in the next word."""
    accept: Accept = _is_password
    before: str = ""
    """The expected text before the anchor."""
    words: int = _MOST_WORDS
    """How many words belong to it: later words are another command."""


_MYSQL = r"-p(?!(?:ort|assword|rotocol|ager|rompt|lugin)\b)|--password="
_CURL = r"(?:-[sSLkfivgGjN#0-46]{0,8}[uU]|--(?:proxy-)?user)"
_PROGRAMS: tuple[_Program, ...] = (
    _Program("mysql", r"mysql(?:admin|binlog|check|dump|import|pump|sh|show|slap)?", _MYSQL),
    _Program("mariadb", r"mariadb(?:-(?:admin|binlog|check|dump|import|show|slap))?", _MYSQL),
    _Program("psql", "psql", r"\\{0,7}[\"']?(?:[a-z_]{1,32}=[^\s\"'\\]{0,128}[ ]{1,4}){0,8}password="),
    _Program("redis-cli", "redis-cli", "--pass=", "-a|--pass"),
    _Program("sshpass", r"sshpass(?:[ \t]{1,4}-P[ \t]{0,4}[^\s\-]{1,64})?(?:[ \t]{1,4}-v)?", "-p", "-p", words=2),
    _Program("curl", "curl", f"{_CURL}=?", _CURL, _is_pair),
    _Program(
        "login", "login", r"-p=?|--password=", "-p|--password",
        before=r"(?:(?<![\w.-])|(?<=\\[nrt]))(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|crane|regctl|az|oc|cf)(?:\.exe)?"
        r"(?:[ \t\"',\\]{1,8}(?!run\b|exec\b|compose\b)[\w./:=-]{1,40}){0,3}[ \t\"',\\]{1,8}",
    ),
)  # fmt: skip
_LONGEST_BEFORE = 100


def _rule(program: _Program) -> Rule:
    name = re.compile(rf"(?:{program.name})(?:\.exe)?(?=[\s\"'\\])")
    before = re.compile(rf"{program.before}\Z")
    options = _Options(re.compile(program.joined), re.compile(program.apart))

    def locate(text: str, at: int, floor: int) -> list[Span] | None:  # noqa: ARG001 - a Locate
        named = name.match(text, at)
        if named is None or not starts_word(text, at, 0) or not before.search(text, max(0, at - _LONGEST_BEFORE), at):
            return None
        found: list[Span] = []
        end = named.end()
        for word in islice(_words(text, end, options), program.words):
            end = word.end
            if word.is_value and program.accept(text[word.start : end]):
                found.append((word.start, end))
        return [*found, nothing_until(end)]

    return Rule(_KIND, (program.anchor,), locate)


class _Options(NamedTuple):
    """The options of a program that have passwords."""

    joined: re.Pattern[str]
    apart: re.Pattern[str]


class _Word(NamedTuple):
    start: int
    end: int
    is_value: bool
    """Whether it is at the place of a password."""


# A line continues after a backslash: "\" and a line end, "\\\n" in JSON, and that in JSON again.
_SPACE = re.compile(
    r"(?:[ \t]|\\\r?\n|(?<!\\)(?:\\{6}|\\{3})n)++|(?P<listed>\\{0,7}[\"'],(?:\s|\\{1,2}n){0,40}+\\{0,7}[\"'])"
)
_ESCAPED = r"\\{1,4}(?:u[0-9A-Fa-f]{4}|[^\s\"'\\nrtu])"
_SHELL = rf"(?:[^\s\"'\\|;&<>()`]|{_ESCAPED})++"
_VALUE = re.compile(rf"(?P<quote>\\{{0,7}}[\"'])(?P<quoted>(?:[^\s\"'\\]|{_ESCAPED})++)(?P=quote)|(?P<bare>{_SHELL})")
_OTHER = re.compile(
    rf"(?:-[A-Za-z]|--[A-Za-z-]{{1,40}}=)?(?P<quote>\\{{0,7}}[\"'])(?:(?!(?P=quote))[^\n]){{0,400}}(?P=quote)|{_SHELL}"
)
# Words of a list have their quotes around them, and no shell reads them.
_LISTED_VALUE = re.compile(rf"(?P<bare>(?:[^\s\"'\\]|{_ESCAPED})++)(?=\\{{0,7}}[\"'])")
_LISTED_OTHER = re.compile(r"(?:[^\n\"'\\]|\\{1,8}[^\n\"'\\])++")


def _words(text: str, at: int, options: _Options) -> Iterator[_Word]:
    """The words of a command, from behind its name on."""
    expected = False
    while (space := _SPACE.match(text, at)) is not None:
        at = space.end()
        value, other = (_VALUE, _OTHER) if space["listed"] is None else (_LISTED_VALUE, _LISTED_OTHER)
        option = options.joined.match(text, at)
        found = value.match(text, option.end() if option else at) if option or expected else None
        if found is not None:
            yield _Word(*found.span("bare" if found["bare"] else "quoted"), is_value=True)
            expected = False
        else:
            found = other.match(text, at)
            if found is None:
                return
            yield _Word(*found.span(), is_value=False)
            expected = options.apart.fullmatch(text, *found.span()) is not None
        at = found.end()


_PIPED = re.compile(
    r"(?:echo|printf)(?:[ \t]{1,4}-[neE]{1,3})?(?:[ \t]{1,4}\\{0,7}[\"']?%s(?:\\{1,4}n)?\\{0,7}[\"']?)?[ \t]{1,4}"
    rf"(?:(?P<quote>\\{{0,7}}[\"'])(?P<quoted>(?:[^\s\"'\\]|{_ESCAPED})++)(?:\\{{1,4}}n)?(?P=quote)|(?P<bare>{_SHELL}))"
    r"[ \t]{0,4}\|[ \t]{0,4}[^|\n]{0,120}\Z"
)
_LONGEST_PIPED = 300


def _piped(text: str, at: int, floor: int) -> Span | None:
    """`echo ... | sudo -S`, `echo ... | docker login --password-stdin`."""
    found = _PIPED.search(text, max(floor, at - _LONGEST_PIPED), at)
    if found is None:
        return None
    start, end = found.span("bare" if found["bare"] else "quoted")
    return (start, end) if _is_password(text[start:end]) else None


COMMANDS: tuple[Rule, ...] = (
    *map(_rule, _PROGRAMS),
    Rule(_KIND, ("--password-stdin", "sudo -S"), _piped),
)

# --- a command as a list of words -------------------------------------------------------------------------------------

_FIRST = frozenset({
    "sudo", "env", "docker", "podman", "nerdctl", "helm", "sshpass", "curl", "redis-cli", "psql", "mysql", "mysqladmin",
    "mysqldump", "mysqlimport", "mysqlsh", "mysqlshow", "mariadb", "mariadb-admin", "mariadb-dump",
})  # fmt: skip


def is_command(words: Sequence[object]) -> bool:
    """Whether a list may be a command with a password: a cheap test of its first word."""
    first = words[0] if words else None
    return isinstance(first, str) and (first in _FIRST or ("/" in first and first.rpartition("/")[2] in _FIRST))
