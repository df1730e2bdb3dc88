"""Criteria run in the same sandboxes as forks."""

from tests.agents.fork.conftest import local

__all__ = ["local"]
