"""The possible side effects of a tool call, from the tool's name and, for shells, from the command."""

import re
from functools import lru_cache

from schemas.evidence import SideEffect

_READ = re.compile(
    r"^(read|list|ls|search|grep|glob|find|view|cat|get|head|tail|stat|show|open|think|plan|todo)", re.IGNORECASE
)
_WRITE = re.compile(
    r"^(write|edit|create|str_replace|apply|patch|insert|append|delete|remove|rm|move|mv|rename|copy|cp|mkdir|save|multi_?edit|notebook_?edit)",
    re.IGNORECASE,
)
_SHELL = re.compile(r"(bash|shell|terminal|command|exec|run_|^run$|python|node|repl|subprocess)", re.IGNORECASE)
_NETWORK = re.compile(
    r"(fetch|http|curl|wget|web_|browser|download|upload|send_|email|slack|publish|deploy)", re.IGNORECASE
)
_EGRESS = re.compile(
    r"\b(git\s+push|npm\s+publish|twine\s+upload|docker\s+push|cargo\s+publish|gh\s+pr|curl|wget|scp|rsync|ssh)\b"
)

SEVERITY: dict[SideEffect, int] = {
    "read": 0,
    "mutate-local": 1,
    "mutate-external": 2,
    "network-egress": 3,
    "unknown": 4,
}


@lru_cache(maxsize=8192)
def side_effect(tool: str, arguments: str) -> SideEffect:
    """The class of a call; `unknown` if its name is not recognised."""
    if _SHELL.search(tool):
        return "network-egress" if _EGRESS.search(arguments) else "mutate-external"
    if _NETWORK.search(tool):
        return "network-egress"
    if _WRITE.match(tool):
        return "mutate-local"
    return "read" if _READ.match(tool) else "unknown"


def worst(classes: list[SideEffect]) -> SideEffect:
    """The worst class of a run; `read` if there were no actions."""
    return max(classes, key=SEVERITY.__getitem__, default="read")
