"""Tokens: what an engine returned is what rows have, bit for bit, and no stream gives back what was redacted."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agents.conversations.tokens import pack_ids, packed, unpack_ids, unpack_logprobs
from agents.importers.line_error import LineError
from agents.importers.lines import LineReader
from schemas.events import AgentEvents
from schemas.training import PpoRecord
from streams.cluster.config import Settings
from streams.jobs.run.run import run_files
from tests.token_engine import END, Tokenizer

AWS = "AKIAIOSFODNN7EXAMPLE"
TOKENIZER = Tokenizer(["The quick brown fox says hello to the key of the user and the tool. " * 3])


@given(some.lists(some.integers(0, 2**31 - 1)))
def test_ids_come_back_as_they_were(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)) == ids


@given(some.lists(some.floats(allow_nan=False, allow_infinity=False)))
def test_log_probabilities_come_back_bit_for_bit(values: list[float]) -> None:
    tokens = packed([], [1] * len(values), values)
    assert tokens.logprobs is not None
    assert [each.hex() for each in unpack_logprobs(tokens.logprobs, wide=tokens.wide)] == [
        each.hex() for each in values
    ]


def test_log_probabilities_of_32_bits_take_32_bits() -> None:
    assert (packed([], [1], [-0.5]).wide, packed([], [1], [-0.1]).wide) == (False, True)


class Conversation:
    """The lines of one branch whose engine tokenises with a tokenizer of the test."""

    def __init__(self, rollout_id: str = "r", branch: int = 0) -> None:
        self._place = {"rollout_id": rollout_id, "branch_index": branch}
        self.lines: list[dict[str, Any]] = []
        self._context: list[str] = []
        self._prompt: list[int] = []
        self._calls = 0
        self._known = 0

    def event(self, kind: str, **data: Any) -> None:
        event = {"channel": "conversation", "event": kind, "data": data}
        self.lines.append({"type": "event", **self._place, "event": event})

    def message(self, role: str, content: str, **more: Any) -> None:
        name = f"m{len(self._context)}"
        self.event("message", id=name, role=role, content=content, **more)
        self._context.append(name)
        shown = content + "".join(call["arguments"] for call in more.get("tool_calls", ()))
        self._prompt += TOKENIZER.encode(f"{role}\n{shown}")

    def call(self, content: str, *, version: str | None = "v1", tokens: Any = None, **more: Any) -> None:
        context = [*self._context]
        prompt = [*self._prompt]
        self.message("assistant", content, **more)
        ids = [*self._prompt[len(prompt) :], END]
        self._prompt = [*prompt, *ids]
        told = {"prompt_ids": prompt, "ids": ids, "logprobs": [-0.5] * len(ids)} if tokens is None else tokens
        after = {"after": f"c{self._calls - 1}", "keep": self._known} if self._calls else {}
        self.event(
            "model_call", call_id=f"c{self._calls}", context={**after, "add": context[self._known :]}, response=self._context[-1],
            model="m", policy_version=version, tokens=told,
        )  # fmt: skip
        self._calls += 1
        self._known = len(self._context)

    def rewrite(self) -> None:
        """The engine writes history anew: other ids for the same messages."""
        self._prompt = [each for each in self._prompt if each != END]

    def whole(self) -> list[dict[str, Any]]:
        opening = {
            "type": "rollout",
            "rollout_id": self._place["rollout_id"],
            "task": "t",
            "branches": 1,
            "required": ["build"],
        }
        answer = {"type": "event", **self._place, "event": {"event": "final_answer", "data": {"answer": "done"}}}
        verdict = {"type": "build", **self._place, "status": "success", "exit_code": 0}
        return [opening, *self.lines, answer, {"type": "end", **self._place}, verdict]


def row_of(tmp_path: Path, talk: Conversation, **settings: Any) -> dict[str, Any]:
    (tmp_path / "lines.ndjson").write_text("".join(json.dumps(line) + "\n" for line in talk.whole()))
    run_files([tmp_path / "lines.ndjson"], tmp_path / "out", Settings(**settings), None)
    (row,) = [json.loads(line) for line in (tmp_path / "out" / "ppo.jsonl").read_text().splitlines()]
    assert PpoRecord.model_validate(row).streams == PpoRecord.model_validate_json(json.dumps(row)).streams
    return row


def decoded(row: dict[str, Any]) -> str:
    return "".join(TOKENIZER.decode(stream["token_ids"]) for stream in row.get("streams", ()))


def test_prompts_that_go_on_are_one_stream(tmp_path: Path) -> None:
    talk = Conversation()
    talk.message("user", "The fox?")
    talk.call("hello", version="v1")
    talk.message("user", "And the key?")
    talk.call("quick", version="v2")
    (stream,) = row_of(tmp_path, talk)["streams"]
    sampled = [each for each, bit in zip(stream["token_ids"], stream["loss_mask"], strict=True) if bit]
    assert sampled == [*TOKENIZER.encode("assistant\nhello"), END, *TOKENIZER.encode("assistant\nquick"), END]
    assert stream["logprobs"] == [-0.5] * len(sampled)
    assert [each["version"] for each in stream["policy_versions"]] == ["v1", "v2"]
    spans = [set(range(each["first"], each["last"] + 1)) for each in stream["policy_versions"]]
    assert set.union(*spans) == {place for place, bit in enumerate(stream["loss_mask"]) if bit}


def test_a_history_that_was_written_anew_is_never_merged(tmp_path: Path) -> None:
    talk = Conversation()
    talk.message("user", "The fox?")
    talk.call("hello")
    talk.rewrite()
    talk.message("user", "And?")
    talk.call("quick")
    row = row_of(tmp_path, talk)
    assert row["retokenised"] is True
    assert [sum(stream["loss_mask"]) for stream in row["streams"]] == [
        len(TOKENIZER.encode(f"assistant\n{said}")) + 1 for said in ("hello", "quick")
    ]


SECRETS = {
    "in a tool's output": lambda talk: (
        talk.call("", tool_calls=[{"id": "a", "name": "f", "arguments": "{}"}]),
        talk.message("tool", f"the key {AWS}", tool_call_id="a"),
    ),
    "in an argument": lambda talk: (
        talk.call("", tool_calls=[{"id": "a", "name": "f", "arguments": json.dumps({"key": AWS})}]),
        talk.message("tool", "ok", tool_call_id="a"),
    ),
    "across two messages": lambda talk: (
        talk.message("user", f"the key {AWS[:11]}"),
        talk.message("user", f"{AWS[11:]} of the user"),
    ),
    "in an argument that a gateway had redacted": lambda talk: (
        talk.message("user", "the key [REDACTED:aws_access_key] of the user"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_ends_the_stream_before_it(tmp_path: Path, name: str) -> None:
    talk = Conversation()
    talk.message("user", "hello fox")
    talk.call("hello")
    SECRETS[name](talk)
    talk.call("done")
    row = row_of(tmp_path, talk)
    assert "hello" in decoded(row)
    assert AWS[:8] not in decoded(row)
    assert AWS not in json.dumps(row)
    assert {each["reason"]: each["calls"] for each in row["tokens_left_out"]}["tokens_redacted"] >= 1


def test_a_secret_in_the_first_prompt_leaves_no_stream(tmp_path: Path) -> None:
    talk = Conversation()
    talk.message("user", f"the key {AWS}")
    talk.call("hello")
    row = row_of(tmp_path, talk)
    assert "streams" not in row
    assert row["tokens_left_out"] == [{"reason": "tokens_redacted", "calls": 1}]


def test_equal_messages_of_which_one_was_redacted_end_the_stream(tmp_path: Path) -> None:
    """After redaction a literal placeholder and a secret are the same message."""
    talk = Conversation()
    talk.event("message", id="twice", role="user", content="[REDACTED:aws_access_key]")
    talk.message("user", AWS)
    talk.call("hello")
    assert "streams" not in row_of(tmp_path, talk)


def test_tokens_beyond_a_slice_are_counted_and_not_cut(tmp_path: Path) -> None:
    talk = Conversation()
    talk.message("user", "hello")
    ids = [7] * 300_000
    talk.call("fox", tokens={"prompt_ids": ids, "ids": [1], "logprobs": [-0.5]})
    row = row_of(tmp_path, talk)
    assert "streams" not in row
    assert row["tokens_left_out"] == [{"reason": "tokens_too_large", "calls": 1}]


def test_a_long_prompt_that_grows_slowly_fits(tmp_path: Path) -> None:
    """A prompt that an earlier call has on the log is not written again: only what is new counts against the limit."""
    talk = Conversation()
    talk.message("user", "hello")
    ids = [7] * 200_000
    talk.call("fox", tokens={"prompt_ids": ids, "ids": [1]})
    talk.message("user", "on")
    talk.call("fox", tokens={"prompt_ids": [*ids, 1, *ids], "ids": [2]})
    (stream,) = row_of(tmp_path, talk)["streams"]
    assert stream["token_ids"] == [*ids, 1, *ids, 2]
    assert stream.get("logprobs") in (None, [])


def test_a_conversation_of_which_one_call_lacks_its_tokens_has_no_stream(tmp_path: Path) -> None:
    talk = Conversation()
    talk.message("user", "hello")
    talk.call("fox")
    talk.message("user", "on")
    talk.call("dog")
    del talk.lines[-1]["event"]["data"]["tokens"]
    row = row_of(tmp_path, talk)
    assert "streams" not in row
    assert row["tokens_left_out"] == [
        {"reason": "tokens_incomplete", "calls": 1},
        {"reason": "tokens_missing", "calls": 1},
    ]


def test_dropped_reasoning_is_in_no_stream(tmp_path: Path) -> None:
    talk = Conversation()
    talk.message("user", "hello")
    talk.call("fox", reasoning="the quick brown")
    row = row_of(tmp_path, talk, emission={"reasoning": "drop"})
    assert "streams" not in row
    assert row["tokens_left_out"] == [{"reason": "reasoning_dropped", "calls": 1}]


BAD = {
    "fewer log-probabilities than ids": {"prompt_ids": [1], "ids": [1, 2], "logprobs": [-0.5]},
    "a text in place of an id": {"prompt_ids": ["1"], "ids": [1]},
    "a negative id": {"prompt_ids": [-1], "ids": [1]},
    "an id beyond 31 bits": {"prompt_ids": [2**31], "ids": [1]},
    "no ids": {"prompt_ids": [1]},
    "a truth in place of an id": {"prompt_ids": [True], "ids": [1]},
}


@pytest.mark.parametrize("name", BAD)
def test_tokens_that_are_none_are_refused_at_their_position(name: str) -> None:
    data = {"call_id": "c", "context": {"add": []}, "tokens": BAD[name]}
    line = {"type": "event", "rollout_id": "r", "branch_index": 0, "event": {"event": "model_call", "data": data}}
    with pytest.raises(LineError, match="tokens"):
        LineReader().read(json.dumps(line))


def test_tokens_without_their_digests_make_the_branch_unfit() -> None:
    from agents.conversations.chat import Odd
    from agents.summarize.event_reader import keep_slice
    from schemas.events import fields_of

    talk = Conversation()
    talk.call("fox")
    (_, slice_) = [LineReader().read(json.dumps(line))[0] for line in talk.lines]
    assert isinstance(slice_, AgentEvents)
    event = slice_.events[0]
    assert event.tokens is not None
    other = event.model_copy(update={"tokens": event.tokens.model_copy(update={"ids": event.tokens.ids[::-1]})})
    for made, odd in ((event, False), (other, True)):
        noted = keep_slice([fields_of(made)], 0, 0, redacting=True).noted
        assert isinstance(noted[0].body, Odd) is odd


def test_the_digest_of_an_event_covers_its_tokens_however_they_are_packed() -> None:
    from agents.importers.slices import Slicer
    from agents.summarize.event_reader import keep_slice
    from schemas.events import fields_of

    talk = Conversation()
    talk.message("user", "hello " * 50)
    talk.call("fox")
    talk.message("user", "on")
    talk.call("dog")
    reader, slicer = LineReader(), Slicer()
    facts = [fact for line in talk.lines for fact in reader.read(json.dumps(line))]
    slices = [piece for fact in facts for piece in slicer.add(fact)] + [*slicer.flush()]
    plain = [event for fact in facts if isinstance(fact, AgentEvents) for event in fact.events]
    small = [event for fact in slices if isinstance(fact, AgentEvents) for event in fact.events]
    digests = [keep_slice([*map(fields_of, events)], 0, 0, redacting=True).digests for events in (plain, small)]
    assert digests[0] == digests[1]
    assert small[-1].tokens is not None
    assert plain[-1].tokens is not None
    assert len(small[-1].tokens.prompt_ids) < len(plain[-1].tokens.prompt_ids) / 3
