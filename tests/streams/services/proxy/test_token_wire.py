"""Token ids through the real proxy: bit for bit on the log, in rows, in Parquet and on the live topic; the caller sees none of them."""

import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.conversations.tokens import unpack_ids, unpack_logprobs
from schemas.events import AgentEvents
from schemas.lifecycle import Lifecycle, RolloutOpened
from schemas.training import PpoRecord, TokenStream
from streams.cluster.config import Settings
from tests.agents.formats.rollouts import group_of_facts, rows
from tests.streams.services.proxy.proxying import events_until_ended, folding, proxying, with_proxy
from tests.token_engine import Engine, Served, serving

pytestmark = pytest.mark.kafka


def play(body: dict[str, Any], number: int) -> dict[str, Any]:
    """Tools, answers, reasoning and truncated answers, as a function of the number of the call."""
    chosen = random.Random(number)
    words = " ".join(chosen.choices(["read", "the", "file", "and", "say", "hello", "42", "ü"], k=chosen.randint(1, 12)))
    told: dict[str, Any] = {"content": words}
    if number % 3 == 0:
        call = {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": "f", "arguments": json.dumps({"x": words})},
        }
        told["tool_calls"] = [call]
    if number % 5 == 0:
        told["reasoning_content"] = f"so {words}"
    if number % 7 == 0 and "tool_calls" not in told:
        told["finish_reason"] = "length"
    return told


def ask(url: str, engine: Engine, turns: int) -> None:
    """A conversation of so many turns, by turns streamed and whole."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read the file."},
    ]
    for turn in range(turns):
        number = len(engine.bodies)
        body = {"model": "tiny", "messages": messages, "temperature": 1.0, "stream": turn % 2 == 0}
        answer = httpx.post(f"{url}/openai/v1/chat/completions", json=body, timeout=30)
        assert answer.content == engine.answers[number]
        reply = play({}, number)
        messages.append({"role": "assistant", **{name: reply[name] for name in reply if name != "finish_reason"}})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": f"out {number}"}
            for call in reply.get("tool_calls", ())
        ]
        if "tool_calls" not in reply:
            messages.append({"role": "user", "content": f"And {number}?"})


def on_the_log(slices: list[AgentEvents]) -> Iterator[Served]:
    """The tokens of the calls of a branch, whole."""
    known: dict[str, list[int]] = {}
    for event in (event for piece in sorted(slices, key=lambda piece: piece.first_seq) for event in piece.events):
        if event.event != "model_call":
            continue
        data, tokens = json.loads(event.data), event.tokens
        assert tokens is not None
        prompt = known.get(data["context"]["after"] or "", [])[: tokens.prompt_keep] + unpack_ids(tokens.prompt_ids)
        ids = unpack_ids(tokens.ids)
        known[data["call_id"]] = prompt + ids
        yield Served(prompt, ids, unpack_logprobs(tokens.logprobs or b"", wide=tokens.wide), data["policy_version"])


def sampled(streams: tuple[TokenStream, ...]) -> list[tuple[list[int], list[float]]]:
    """By run of the mask, the ids and log-probabilities that the policy sampled."""
    found: list[tuple[list[int], list[float]]] = []
    for stream in streams:
        known = iter(stream.logprobs)
        for span in stream.policy_versions:
            ids = list(stream.token_ids[span.first : span.last + 1])
            assert set(stream.loss_mask[span.first : span.last + 1]) == {1}
            found.append((ids, [next(known) for _ in ids]))
        assert next(known, None) is None
    return found


def assert_rows_are_what_was_served(group: Any, served: dict[int, list[Served]], *, forgets: bool) -> None:
    for branch, calls in served.items():
        records: list[PpoRecord] = [row for row in group.ppo if row.branch_index == branch]
        streams = [stream for row in records for stream in row.streams]
        assert sampled(tuple(streams)) == [(call.ids, call.logprobs) for call in calls]
        columns = [row for row in rows("tokens-parquet", group) if row["branch_index"] == branch]
        assert [row["prompt_ids"] + row["response_ids"] for row in columns] == [
            list(each.token_ids) for each in streams
        ]
        pairs = [
            (token, value)
            for row in columns
            for token, bit, value in zip(row["response_ids"], row["loss_mask"], row["logprobs"], strict=True)
            if bit
        ]
        assert pairs == [pair for call in calls for pair in zip(call.ids, call.logprobs, strict=True)]
        joins = [
            one.prompt_ids + one.ids == two.prompt_ids[: len(one.prompt_ids + one.ids)]
            for one, two in itertools.pairwise(calls)
        ]
        assert len(streams) == 1 + joins.count(False)
        assert {row.retokenised for row in records} == {False in joins}
        assert (False in joins) is forgets


async def played(settings: Settings, folder: Path, turns: int, branches: int, *, forgets: bool) -> None:
    engine = Engine(play, forgets=forgets)
    served: dict[int, list[Served]] = {}
    with serving(engine) as upstream:
        configured = with_proxy(settings, folder / "spool", upstream, token_ids=True)
        with proxying(configured) as url, folding(configured):
            for branch in range(branches):
                first = len(engine.served)
                ask(f"{url}/r/tokens/b/{branch}", engine, turns)
                served[branch] = engine.served[first:]
                assert httpx.post(f"{url}/r/tokens/b/{branch}/end").status_code == 202
            slices = await events_until_ended(configured, branches)
    for branch, calls in served.items():
        assert list(on_the_log([piece for piece in slices if piece.branch_index == branch])) == calls
    opened = RolloutOpened(
        rollout_id="tokens",
        task="Chat",
        branches=branches,
        required=("build",),
        repo_commit="c",
        tool_manifest_digest="d" * 64,
    )
    group = group_of_facts([Lifecycle(opened=opened), *slices], passes=range(branches))
    assert_rows_are_what_was_served(group, served, forgets=forgets)
    (row,) = rows("verl-parquet", group)
    streams = [stream for record in group.ppo for stream in record.streams]
    assert row["stream_branches"] == [record.branch_index for record in group.ppo for _ in record.streams]
    assert [one + two for one, two in zip(row["prompt_ids"], row["response_ids"], strict=True)] == [
        list(each.token_ids) for each in streams
    ]


@pytest.mark.parametrize("forgets", [False, True])
async def test_tokens_are_what_the_engine_returned(settings: Settings, tmp_path: Path, forgets: bool) -> None:
    """With a template that forgets reasoning, histories are written anew: such streams are never merged."""
    await played(settings, tmp_path, 8, 1, forgets=forgets)


@pytest.mark.long
async def test_a_thousand_calls_are_what_the_engine_returned(settings: Settings, tmp_path: Path) -> None:
    await played(settings, tmp_path, 25, 40, forgets=True)
