"""Audit of a task directory: could an agent get the reward without doing the work, or fail although it did the work?

The audit is a pure function of the directory's files (`TaskTree`). File modes are not checked, because an agent
that is root may write anything. A caller with a sandbox adds runs of the task's own tests.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from agents.redaction.redaction import contains_secret
from schemas.jsontext import parse
from schemas.numbers import nine

FINDINGS: Final[Mapping[str, tuple[str, str | None]]] = {
    "missing-tests": ("critical", "S7"), "answer-visible": ("critical", "S1"), "grader-visible": ("critical", "S4"),
    "escaping-symlink": ("critical", "S1"), "solution-fails": ("critical", "S7"), "untouched-passes": ("critical", "S7"),
    "broken-passes": ("critical", "S7"), "tests-visible": ("high", "S2"), "tests-unprotected": ("high", "S2"),
    "secret-present": ("high", "S3"), "history-present": ("high", "S5"), "contaminated": ("high", "S1"),
    "answer-assigned": ("medium", "S3"), "no-manifest": ("medium", "S6"), "same-instruction": ("medium", None),
    "no-network-policy": ("low", "S6"), "no-solution": ("low", "S7"),
}  # fmt: skip
"""The severity and the surface of each finding, by id."""

SEVERITIES: Final = ("critical", "high", "medium", "low")
PENALTIES: Final = {"critical": 0.4, "high": 0.2, "medium": 0.1, "low": 0.05}

ANSWERS: Final = frozenset(
    {"answer", "answers", "solution", "gold", "expected", "expected_output", "oracle", "ground_truth"}
)
GRADERS: Final = ("grade", "score", "verify", "judge", "reward")
PROGRAMS: Final = (".py", ".sh", ".js", ".ts")
TESTS: Final = ("test_*.py", "*_test.py", "*.test.js", "*.test.ts", "*.spec.js", "*.spec.ts")
HISTORY: Final = frozenset({".git", ".hg", ".svn"})
LEFTOVERS: Final = (".patch", ".orig", ".rej")
MANIFESTS: Final = ("task.toml", "task.json", "task.yaml", "task.yml")
ASSIGNING: Final = (".sh", ".py", ".toml", ".yaml")
SMALLEST_COPY: Final = 16
"""Two equal files count as a copy from this many bytes."""
LOOKED_AT: Final = 4 << 20
"""Maximum bytes of a file that are searched for secrets and assignments."""

_ASSIGNED: Final = re.compile(
    r"^[^\S\n]*(?:export[^\S\n]+|ENV[^\S\n]+)?(?:ANSWER|SOLUTION|GOLD|EXPECTED)[^\S\n]*=", re.MULTILINE
)
_YAML_POLICY: Final = re.compile(r"^[^\S\n]*allow_internet[^\S\n]*:", re.MULTILINE)


@dataclass(frozen=True)
class TaskTree:
    """The files of a task directory."""

    path: str
    """The path as the caller gave it."""
    files: Mapping[str, bytes]
    """File contents by path in the directory, with forward slashes."""
    links: Mapping[str, bool]
    """For each link, by path: whether it leads out of the directory."""
    folders: frozenset[str] = frozenset()
    """Every folder, including empty ones."""

    @property
    def is_harbor(self) -> bool:
        """Whether the directory has Harbor's layout. In any other directory, all files are visible from the start."""
        return "task.toml" in self.files or "instruction.md" in self.files

    @property
    def start(self) -> str:
        """The folder that the agent starts with, with a trailing slash; empty for the whole directory."""
        return "environment/" if self.is_harbor and "environment" in self.folders else ""

    def visible(self) -> dict[str, bytes]:
        """The files that the agent starts with, by their path there."""
        return {
            path.removeprefix(self.start): content
            for path, content in self.files.items()
            if path.startswith(self.start)
        }

    def under(self, folder: str) -> dict[str, bytes]:
        """The files below a folder of the directory."""
        return {path: content for path, content in self.files.items() if path.startswith(f"{folder}/")}

    @property
    def instruction(self) -> str | None:
        """The instruction that the agent gets."""
        raw = self.files.get("instruction.md")
        return None if raw is None else raw.decode(errors="replace")


class Finding(NamedTuple):
    """A fault of a task."""

    id: str
    path: str
    """The path in the task directory; empty if the finding concerns the whole task."""

    @property
    def severity(self) -> str:
        """The severity of the finding."""
        return FINDINGS[self.id][0]

    def plain(self) -> dict[str, Any]:
        """Return the finding as `--json` prints it."""
        return {"id": self.id, "severity": self.severity, "path": self.path, "surface": FINDINGS[self.id][1]}


class TaskAudit(NamedTuple):
    """The audit of one task."""

    path: str
    findings: tuple[Finding, ...]

    @property
    def score(self) -> float:
        """The score: 1 minus a penalty for each kind of finding."""
        kinds = {finding.id for finding in self.findings}
        return nine(max(0.0, 1.0 - sum(PENALTIES[FINDINGS[kind][0]] for kind in sorted(kinds))))

    @property
    def trusted(self) -> bool:
        """Whether there are no critical or high findings."""
        return all(finding.severity not in ("critical", "high") for finding in self.findings)

    def plain(self) -> dict[str, Any]:
        """Return the audit as `--json` prints it."""
        return {
            "path": self.path, "score": self.score, "trusted": self.trusted, "findings": [each.plain() for each in self.findings]
        }  # fmt: skip


def audited(tree: TaskTree, more: Iterable[Finding] = ()) -> TaskAudit:
    """Return the audit of a task; `more` are findings from other sources."""
    found = {*_lint(tree), *more}
    return TaskAudit(
        tree.path, tuple(sorted(found, key=lambda each: (SEVERITIES.index(each.severity), each.id, each.path)))
    )


def same_instructions(trees: Iterable[TaskTree]) -> set[str]:
    """Return the paths of the tasks that share their instruction with another task of this call."""
    by_text: dict[str, list[str]] = {}
    for tree in trees:
        if tree.instruction is not None and tree.instruction.strip():
            by_text.setdefault(folded(tree.instruction), []).append(tree.path)
    return {path for paths in by_text.values() if len(paths) > 1 for path in paths}


def folded(text: str) -> str:
    """Return a text without differences of case and whitespace."""
    return " ".join(normalize("NFKC", text).casefold().split())


def _lint(tree: TaskTree) -> Iterator[Finding]:
    yield from _missing(tree)
    yield from (Finding("escaping-symlink", path) for path, leaves in tree.links.items() if leaves)
    protected = _protected(tree)
    copies = {
        "answer-visible": _digests(tree.under("solution")), "tests-visible": _digests(tree.under("tests"))
    }  # fmt: skip
    for name, content in tree.visible().items():
        path = tree.start + name
        own = sha256(content).digest() if len(content) >= SMALLEST_COPY else b""
        yield from (Finding(kind, path) for kind, digests in copies.items() if own in digests)
        yield from (
            Finding(kind, path)
            for kind in _by_name(name, is_protected=any(fnmatchcase(name, each) for each in protected))
        )
        yield from (Finding(kind, path) for kind in _by_content(name, content))
    for folder in sorted(tree.folders):
        if folder.startswith(tree.start) and folder.rpartition("/")[2] in HISTORY:
            yield Finding("history-present", folder)


def _missing(tree: TaskTree) -> Iterator[Finding]:
    if tree.is_harbor and not tree.under("tests"):
        yield Finding("missing-tests", "tests")
    if tree.is_harbor and not tree.under("solution"):
        yield Finding("no-solution", "solution")
    if not any(name in tree.files for name in MANIFESTS):
        yield Finding("no-manifest", "")
    if not any(_says_network(name, tree.files[name]) for name in MANIFESTS if name in tree.files):
        yield Finding("no-network-policy", "")


def _by_name(name: str, *, is_protected: bool) -> Iterator[str]:
    base = name.rpartition("/")[2].lower()
    stem = base.split(".", 1)[0]
    if stem in ANSWERS:
        yield "answer-visible"
    if stem.startswith(GRADERS) and base.endswith(PROGRAMS) and not is_protected:
        yield "grader-visible"
    if any(fnmatchcase(base, pattern) for pattern in TESTS) and not is_protected:
        yield "tests-unprotected"
    if base == ".env" or base.startswith(".env."):
        yield "secret-present"
    if base in HISTORY or base.endswith(LEFTOVERS):
        yield "history-present"


def _by_content(name: str, content: bytes) -> Iterator[str]:
    base = name.rpartition("/")[2]
    if HISTORY & set(name.split("/")):
        return  # do not search the objects of a version history: the history itself is the finding
    text = content[:LOOKED_AT].decode(errors="replace")
    if contains_secret(text):
        yield "secret-present"
    if (base.endswith(ASSIGNING) or base.startswith((".env", "Dockerfile"))) and _ASSIGNED.search(text):
        yield "answer-assigned"


def _digests(files: Mapping[str, bytes]) -> set[bytes]:
    return {sha256(content).digest() for content in files.values() if len(content) >= SMALLEST_COPY}


def _protected(tree: TaskTree) -> list[str]:
    """Return the patterns of files that an agent must not change; empty if the manifest cannot be read."""
    braid = _member(_toml(tree.files.get("task.toml", b"")), "metadata", "braid")
    patterns = braid.get("protected") if isinstance(braid, dict) else None
    return [each for each in patterns if isinstance(each, str)] if isinstance(patterns, list) else []


def _says_network(name: str, content: bytes) -> bool:
    if name.endswith(".toml"):
        value: Any = _toml(content)
    elif name.endswith(".json"):
        try:
            value = parse(content)
        except ValueError:
            return False
    else:
        return _YAML_POLICY.search(content[:LOOKED_AT].decode(errors="replace")) is not None
    return isinstance(_member(value, "environment", "allow_internet"), bool)


def _toml(content: bytes) -> Any:
    try:
        return tomllib.loads(content.decode())
    except (ValueError, RecursionError):
        return {}


def _member(value: Any, *names: str) -> Any:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value
