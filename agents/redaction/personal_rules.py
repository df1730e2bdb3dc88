"""Data that names a person: e-mail addresses and home directories.

Of a path only the name is removed, so that it still reads as a path. Left alone: addresses of machines and mailboxes
that name no person (`git@github.com`, `noreply@...`), package versions (`foo@1.2.3`), matrix products (`x@w.T`), home
directories of accounts that every image or runner has (`/home/user`, `/home/runner`), and `/root`.
"""

import re

from agents.redaction.secret_shapes import Rule, Span, after_escape

_NOBODY = frozenset({"git", "hg", "root", "noreply", "no-reply", "donotreply", "do-not-reply"})
_LONGEST_LOCAL = 64
_DOMAIN = re.compile(
    r"(?:@|%40)(?!v?[0-9]+\.[0-9x])(?![1-4]x\.)"  # foo@1.2.3 and icon@2x.png
    r"(?:(?=[^\W_])[\w\-]{1,63}\.){1,8}(?P<top>[^\W\d_]{2,24})(?![\w(])"
)
_NOT_TOP = frozenset({
    "astype", "conf", "data", "dtype", "grad", "jpeg", "jpg", "json", "mount", "numpy", "path", "png", "reshape", "service", "shape",
    "slice", "socket", "svg", "target", "timer", "toml", "transpose", "value", "values", "view", "weight", "weights", "yaml", "yml",
})  # fmt: skip
"""Last parts of file names, systemd units and attributes, none of which is a top-level domain."""


def _email(text: str, at: int, floor: int) -> Span | None:
    domain = _DOMAIN.match(text, at)
    if domain is None or domain["top"].lower() in _NOT_TOP:
        return None
    start, first = at, max(floor, at - _LONGEST_LOCAL)
    while start > first and (text[start - 1].isalnum() or text[start - 1] in "._%+-"):
        start -= 1
    start = min(at, after_escape(text, start))
    while start < at and text[start] in ".%-":
        start += 1
    local = text[start:at]
    is_variable = local.isupper() and text[max(0, start - 1) : start] == "$"  # https://$TOKEN@host
    named = any(letter.isalnum() for letter in local)  # in a patch, `+@pytest.fixture` adds a decorator
    return (start, domain.end()) if named and local.lower() not in _NOBODY and not is_variable else None


_SHARED_ACCOUNTS = frozenset({
    "admin", "administrator", "all users", "app", "appuser", "azureuser", "build", "builder", "circleci", "coder",
    "codespace", "container", "default", "dev", "developer", "docker", "ec2-user", "ftp", "guest", "jenkins", "jovyan",
    "linuxbrew", "nobody", "node", "nonroot", "pi", "pptruser", "public", "runner", "runneradmin", "sandbox", "shared",
    "ubuntu", "user", "username", "vagrant", "vscode", "you", "your_username",
})  # fmt: skip
"""Accounts that are common in images, runners and manuals; their names do not identify a person."""
_NAME = r"(?P<name>(?![0-9.\-]+[/\\\s])[\w](?:[\w.@+\-]{0,62}[\w$])?)"
_POSIX_HOME = re.compile(rf"/(?:home|Users)/{_NAME}")
_WINDOWS_HOME = re.compile(
    r"\\[Uu]sers(?:\\{8}|\\{4}|\\{2}|\\)(?!\\)(?P<name>[\w.\-]{1,32}(?: [A-Z][\w.\-]{0,32}){1,2}(?=\\)|[\w](?:[\w.@+\-]{0,62}[\w$])?)"
)
_DRIVE_HOME = re.compile(rf"/[Uu]sers/{_NAME}")
_INSIDE_PATH = re.compile(r"[\w.\-~)\]}/]")
_ROOT_BEFORE = re.compile(
    r"(?:\\[nrt]|\bfile:/{1,3}|(?<![:\w])/|-[A-Z]|\\u[0-9A-Fa-f]{4}|%[0-9A-Fa-f]{2}"
    r"|/(?:mnt|media|var|export|private|rootfs|host|volumes?|data)(?:/[\w\-]{1,32})?)\Z",
    re.IGNORECASE,
)


def _posix_home(text: str, at: int, floor: int) -> Span | None:  # noqa: ARG001 - a Locate
    found = _POSIX_HOME.match(text, at)
    if found is None or found["name"].lower() in _SHARED_ACCOUNTS:
        return None
    # "https://host/home/page" and "src/home/index" are not home directories
    inside = at > 0 and _INSIDE_PATH.match(text, at - 1)
    if inside and not _ROOT_BEFORE.search(text, max(0, at - 24), at):
        return None
    return found.span("name")


def _windows_home(text: str, at: int, floor: int) -> Span | None:  # noqa: ARG001 - a Locate
    found = _WINDOWS_HOME.match(text, at)
    return found.span("name") if found and found["name"].lower() not in _SHARED_ACCOUNTS else None


def _drive_home(text: str, at: int, floor: int) -> Span | None:  # noqa: ARG001 - a Locate
    found = _DRIVE_HOME.match(text, at + 1)
    return found.span("name") if found and found["name"].lower() not in _SHARED_ACCOUNTS else None


HOMES: tuple[Rule, ...] = (
    Rule("home_directory", ("/home/", "/Users/"), _posix_home),
    Rule("home_directory", ("\\Users\\", "\\users\\"), _windows_home),
    Rule("home_directory", (":/Users/", ":/users/"), _drive_home),
)
ADDRESSES: tuple[Rule, ...] = (Rule("email", ("@", "%40"), _email),)
