"""The subject of a verdict, and the verdict's id: a function of the verifier and the examined files, not of the result.

A look that is repeated after a crash has the same id, so it is known before the look whether its verdict is in the log.
"""

from typing import Any, NamedTuple

from agents.importers.records import content_id


class Subject(NamedTuple):
    """One attempt of a branch, as a verifier tests it."""

    rollout_id: str
    branch_index: int
    attempt: int
    produced_by: str
    about: str
    """The task and the files: see `about_of`."""

    def verdict_id(self, kind: str) -> str:
        """The id of its verdict of a kind."""
        return content_id(kind, list(self))

    def said(self, kind: str) -> dict[str, Any]:
        """The fields that every verdict has."""
        return {
            "rollout_id": self.rollout_id,
            "branch_index": self.branch_index,
            "attempt": self.attempt,
            "produced_by": self.produced_by,
            "verdict_id": self.verdict_id(kind),
        }


def about_of(task_digest: str, files_digest: str) -> str:
    """A task and files, as one name."""
    return f"{task_digest}/{files_digest}"
