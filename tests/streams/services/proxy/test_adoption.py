"""Calls without an identity: each conversation is a branch, however many there are."""

import json
from pathlib import Path
from typing import Any

import pytest

from streams.services.proxy import adoption
from streams.services.proxy.adoption import Adoption
from streams.services.proxy.identity import BranchId

HELLO = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "yes?"}


def asked(adopting: Adoption, *messages: dict[str, Any]) -> BranchId:
    return adopting.assign("openai-chat", json.dumps({"messages": messages}).encode())


def test_more_conversations_than_a_rollout_has_branches_go_on_in_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adoption, "MAX_INDEX", 2)
    adopting = Adoption(tmp_path / "adopted")
    found = []
    for _ in range(7):
        found.append(asked(adopting, HELLO))
        adopting.finish(found[-1], answered=True)
        assert asked(adopting, HELLO, ANSWER, HELLO) == found[-1], "it goes on where it is"
        adopting.finish(found[-1], answered=True)
    name = found[0].rollout_id
    places = [(name, 0), (name, 1), (name, 2), (f"{name}-1", 0), (f"{name}-1", 1), (f"{name}-1", 2), (f"{name}-2", 0)]
    assert [(each.rollout_id, each.branch_index) for each in found] == places
    assert asked(Adoption(tmp_path / "adopted"), HELLO) == BranchId(f"{name}-2", 1), (
        "after a restart no number comes again"
    )


def test_the_oldest_conversations_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "MAX_BRANCHES", 3)
    adopting = Adoption(tmp_path / "adopted")
    first = asked(adopting, HELLO)
    adopting.finish(first, answered=True)
    for _ in range(3):
        adopting.finish(asked(adopting, HELLO), answered=True)
    goes_on = {asked(adopting, HELLO, ANSWER, HELLO).branch_index for _ in range(3)}
    assert goes_on == {1, 2, 3}
    assert asked(adopting, HELLO, ANSWER, HELLO).branch_index == 4


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"messages": 7}',
        b'{"messages": []}',
        b'{"messages": ["\\ud800"]}',
        b'{"messages": [[]]}',
        b"\xff",
        b"[" * 100_000,
    ],
)
def test_whatever_comes_is_a_conversation(tmp_path: Path, body: bytes) -> None:
    found = Adoption(tmp_path / "adopted").assign("openai-chat", body)
    assert (found.rollout_id[:4], found.branch_index) == ("cap-", 0)
