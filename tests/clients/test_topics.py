"""Rows of a topic, without a broker: every row once, whatever the order of the log and wherever the training stops."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from braidstream.topics import EVIDENCE, Topic, _Codec, _Window, chat, tokens
from hypothesis import given
from hypothesis import strategies as st

from schemas.training import PolicySpan, SftRecord, TokenStream
from streams.log.topics import SFT
from streams.log.wire import Codec
from tests.agents.formats.rollouts import encoded, group_of, mixed, rows
from tests.processes import run_braid

ROOT = Path(__file__).parents[2]
SCHEMAS = ROOT / "schemas" / "avro"
ROWS = "training.sft.v1/0"


class Stored(NamedTuple):
    """A record of the played log."""

    place: str
    offset: int
    body: bytes
    record: dict[str, Any]


def log_of(sizes: list[int], order: list[int], repeated: set[int]) -> list[Stored]:
    """Rollouts with so many rows each, and the closing evidence of each, in an order of the two topics' own."""
    facts: list[tuple[str, dict[str, Any], bytes]] = []
    for rollout, size in enumerate(sizes):
        bodies = [f"{rollout}.{number}".encode() for number in range(size)]
        listed = [{"topic": "training.sft.v1", "digest": hashlib.sha256(body).hexdigest()} for body in bodies]
        facts += [(ROWS, {"rollout_id": f"r{rollout}", "record_id": body.decode()}, body) for body in bodies]
        closing = {"rollout_id": f"r{rollout}", "record_id": f"e{rollout}", "closing": {"emitted": listed}}
        facts.append((f"{EVIDENCE}/0", closing, b""))
    shuffled = [facts[index % len(facts)] for index in order] + facts
    kept = list({(place, record["record_id"]): (place, record, body) for place, record, body in shuffled}.values())
    kept += [kept[index % len(kept)] for index in repeated]
    offsets = {ROWS: 0, f"{EVIDENCE}/0": 0}
    stored = []
    for place, record, body in kept:
        stored.append(Stored(place, offsets[place], body, record))
        offsets[place] += 1
    return stored


def read(topic: Topic, log: list[Stored], *, whole: bool) -> Iterator[dict[str, Any]]:
    """The rows that a topic hands out, from where its training stands."""
    window = _Window("training.sft.v1", topic.state_dict()["done"])
    for place, offset, body, record in log:
        if offset >= topic.state_dict()["offsets"].get(place, 0) and (whole or place == ROWS):
            take = window.take_whole if whole else window.take
            yield from take(place, offset, body, record)


@given(
    sizes=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    order=st.lists(st.integers(0, 30), max_size=20),
    repeated=st.sets(st.integers(0, 30), max_size=4),
    stops=st.lists(st.integers(0, 6), max_size=4),
    whole=st.booleans(),
)
def test_every_row_is_done_once(
    sizes: list[int], order: list[int], repeated: set[int], stops: list[int], whole: bool
) -> None:
    """The training stops after so many rows, one of them handed out and not done, and goes on from its stored state."""
    log, done, state = log_of(sizes, order, repeated), [], None
    for stop in [*stops, 1000]:
        topic = Topic("sft", kafka="")
        if state is not None:
            topic.load_state_dict(json.loads(json.dumps(state)))
        for number, row in enumerate(read(topic, log, whole=whole)):
            if number == stop:
                break
            topic.done(row)
            done.append(row["record_id"])
        state = topic.state_dict()
    assert sorted(done) == sorted(f"{rollout}.{number}" for rollout, size in enumerate(sizes) for number in range(size))


def test_a_rollout_comes_whole_or_not_at_all() -> None:
    """A row that is missing, or that no evidence lists, keeps its rollout back or is dropped."""
    log = [each for each in log_of([2, 2], [], set()) if each.record["record_id"] != "1.0"]
    stranger = Stored(ROWS, 9, b"forged", {"rollout_id": "r0", "record_id": "0.9"})
    found = [row["record_id"] for row in read(Topic("sft", kafka=""), [stranger, *log], whole=True)]
    assert found == ["0.0", "0.1"]


def test_records_are_read_as_the_application_writes_them(tmp_path: Path) -> None:
    """Without a registry the committed schemas tell; with one, a function or an address does."""
    (tmp_path / "lines.ndjson").write_bytes(encoded(mixed("r1")))
    run_braid("run", tmp_path / "lines.ndjson", "--out", tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out" / "sft.jsonl").read_text("utf-8").splitlines()]
    made = SftRecord.model_validate(rows[0])
    value = Codec().encode(made)
    body, record = _Codec(None, SCHEMAS).decode(value)
    assert SftRecord.model_validate(record) == made
    assert Codec().decode(SFT, value) == made
    newest = max(SCHEMAS.glob("SftRecord.v*.avsc"), key=lambda path: int(path.name.split(".")[1][1:]))
    told = _Codec(lambda number: newest.read_text("utf-8") if number == 7 else "", None)
    assert told.decode(b"\x00\x00\x00\x00\x07" + body)[1] == record
    assert [message["role"] for message in chat(record["messages"])] == [each.role for each in made.messages]
    assert all(None not in (message | {"content": ""}).values() for message in chat(record["messages"]))


@pytest.mark.parametrize(
    ("value", "reason"), [(b"\x00\x00\x00\x00\x07", "registry"), (b"\xc3\x01" + bytes(8), "schemas/avro")]
)
def test_a_missing_schema_says_what_to_name(value: bytes, reason: str) -> None:
    """The setting that would tell it."""
    with pytest.raises(ValueError, match=reason):
        _Codec(None, None).decode(value)


def test_an_unknown_topic_is_refused() -> None:
    """The message lists those that there are."""
    with pytest.raises(ValueError, match="sft, dpo, ppo, rejected"):
        Topic("grpo", kafka="")


def test_the_streams_of_a_row_are_the_rows_of_a_tokens_dataset() -> None:
    """The client and `braid export --format tokens-parquet` say the same of a row."""
    streams = (
        TokenStream(
            token_ids=(1, 2, 3, 4, 5), loss_mask=(0, 0, 1, 0, 1), logprobs=(-0.5, -0.25),
            policy_versions=(PolicySpan(first=2, last=2, version="v1"), PolicySpan(first=4, last=4, version="v2")),
        ),
        TokenStream(token_ids=(1, 9), loss_mask=(0, 1), policy_versions=(PolicySpan(first=1, last=1, version="v2"),)),
    )  # fmt: skip
    group = group_of(mixed())
    group = replace(
        group, ppo=tuple(row.model_copy(update={"streams": streams, "retokenised": True}) for row in group.ppo)
    )
    wanted = rows("tokens-parquet", group)
    found = [stream for row in group.ppo for stream in tokens(row.model_dump())]
    assert len(found) == 2 * len(group.ppo) > 0
    assert [{name: row[name] for name in stream} for stream, row in zip(found, wanted, strict=True)] == found
