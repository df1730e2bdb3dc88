"""A workplace: everything that one process needs to work on partitions of a job."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Self, TypeVar

from pydantic import BaseModel

Found = TypeVar("Found", bound=BaseModel)
"""The result of a partition."""

Moved = Callable[[int], None]
"""So many facts were read since the last time."""


class Workplace(ABC, Generic[Found]):
    """Everything that one process needs to work on partitions in turn."""

    @abstractmethod
    async def work(self, partition: int, moved: Moved) -> Found:
        """Work on a partition; its files are complete when this returns."""

    def discard(self, partition: int) -> None:
        """Remove the files of a partition that is not complete; called when the process ends in the middle of it."""
        del partition

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return
