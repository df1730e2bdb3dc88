"""Training rows while they come: a topic of Braidstream as an iterator, or as a torch dataset, that can be resumed.

    rows = Topic("dpo", kafka="127.0.0.1:9092", registry="http://127.0.0.1:8081/apis/ccompat/v7")
    rows.load_state_dict(saved)                                        # after a restart
    for row in DataLoader(rows.dataset(), batch_size=None, num_workers=2):
        train(row)
        rows.done(row)                                                 # then save rows.state_dict() with the model

A row is the record of the topic as a dict, with `position` beside: done(row) reads it. The stream goes on with the first row that was
not done, whatever workers had fetched ahead, and with any number of them; a row that a restarted writer wrote twice is handed out once.
With `whole=True` the rows of a rollout come together, when its closing evidence is there and every row that it lists was read with the
digest that it states. Needs the extra `topics` (confluent-kafka, fastavro); torch only for `dataset()`.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Callable
from urllib.request import urlopen

try:
    import confluent_kafka
    import fastavro
except ImportError as error:
    raise ImportError(f"reading topics needs {error.name}: install braidstream-client[topics]") from None

__all__ = ["Topic", "chat", "functions", "tokens"]

NAMES = {name: f"training.{name}.v1" for name in ("sft", "dpo", "ppo", "rejected")}
EVIDENCE = "evidence.aep.v1"
REMEMBERED = 10_000
"""Ids of the last rows that were done: repetitions stand close to each other in the log."""

Places = list  # of [topic/partition, offset]


class Topic:
    """The rows of a training topic: sft, dpo, ppo or rejected.

    `registry` is the address of the schema registry, or a function from a schema's id to its text; without a registry `schemas` names
    the folder of the committed schemas (schemas/avro). `options` are settings of librdkafka. Without `stop_after_idle_s` there is no end.
    """

    def __init__(
        self,
        name: str,
        *,
        kafka: str,
        registry: str | Callable[[int], str] | None = None,
        schemas: str | Path | None = None,
        prefix: str = "",
        whole: bool = False,
        stop_after_idle_s: float | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if name not in NAMES:
            raise ValueError(f"there is no training topic {name!r}; there are {', '.join(NAMES)}")
        self._name, self._kafka, self._prefix, self._whole = NAMES[name], kafka, prefix, whole
        self._registry, self._schemas = registry, schemas
        self._stop_after_idle_s = stop_after_idle_s
        self._options = dict(options or {})
        self._offsets: dict[str, int] = {}
        self._done: dict[str, Places[Any]] = {}

    def dataset(self) -> Any:
        """The same rows as a torch IterableDataset; workers of a DataLoader share the partitions."""
        from torch.utils.data import IterableDataset

        topic = self

        class Rows(IterableDataset):  # type: ignore[misc]
            """The rows of a topic."""

            def __iter__(self) -> Iterator[dict[str, Any]]:
                return iter(topic)

        return Rows()

    def done(self, row: Mapping[str, Any]) -> None:
        """Note that a row was trained on. Rows of one partition are done in the order in which they came."""
        position = json.loads(row["position"])
        self._offsets.update(position["from"])
        self._done.update(position["done"])
        for name, places in list(self._done.items())[:-REMEMBERED]:
            if all(offset < self._offsets.get(place, 0) for place, offset in places):
                del self._done[name]

    def state_dict(self) -> dict[str, Any]:
        """Where the training stands, as JSON: offsets to read from, and what was done after them or shortly before."""
        return {"offsets": dict(self._offsets), "done": dict(self._done)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        self._offsets, self._done = dict(state["offsets"]), dict(state["done"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The rows, without an end; or until none has come for a while."""
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._kafka,
                "group.id": "braidstream-client",
                "enable.auto.commit": False,
                **self._options,
            }
        )
        try:
            yield from self._rows(consumer)
        finally:
            consumer.close()

    def _rows(self, consumer: Any) -> Iterator[dict[str, Any]]:
        codec, window = _Codec(self._registry, self._schemas), _Window(self._name, self._done)
        topics = [self._name, EVIDENCE] if self._whole else [self._name]
        consumer.assign([each for topic in topics for each in self._partitions(consumer, topic)])
        moved = time.monotonic()
        while self._stop_after_idle_s is None or time.monotonic() - moved < self._stop_after_idle_s:
            for message in consumer.consume(500, timeout=0.2):
                if message.error():
                    raise confluent_kafka.KafkaException(message.error())
                moved = time.monotonic()
                place = f"{message.topic()[len(self._prefix) :]}/{message.partition()}"
                body, record = codec.decode(message.value())
                take = window.take_whole if self._whole else window.take
                yield from take(place, message.offset(), body, record)

    def _partitions(self, consumer: Any, topic: str) -> list[Any]:
        """This worker's partitions of a topic, each from where the training stands. The same share of every topic."""
        name, data = f"{self._prefix}{topic}", sys.modules.get("torch.utils.data")
        info = data.get_worker_info() if data is not None else None
        first, step = (info.id, info.num_workers) if info is not None else (0, 1)
        found = consumer.list_topics(name, timeout=30).topics[name]
        if found.error is not None:
            raise confluent_kafka.KafkaException(found.error)
        return [
            confluent_kafka.TopicPartition(name, number, self._offsets.get(f"{topic}/{number}", 0))
            for number in sorted(found.partitions)[first::step]
        ]


class _Window:
    """Rows that were read: those that were handed out, and with whole rollouts those that wait for the rest of theirs."""

    def __init__(self, topic: str, done: Mapping[str, Places[Any]]) -> None:
        self._topic = topic
        self._seen = dict(done)
        """Rows by id, and rollouts that were handed out whole."""
        self._limit = len(done) + REMEMBERED
        self._rows: dict[str, dict[str, tuple[str, int, dict[str, Any]]]] = {}
        """By rollout and digest: place, offset, row."""
        self._closings: dict[str, tuple[str, int, dict[str, Any]]] = {}
        self._next: dict[str, int] = {}

    def take(self, place: str, offset: int, _body: bytes, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The row, if it is new."""
        if row["record_id"] not in self._seen:
            done = self._remember(row["record_id"], [[place, offset]])
            yield _at(row, {place: offset + 1}, done)

    def take_whole(self, place: str, offset: int, body: bytes, record: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Keep a record; returns the rows of its rollout that are new, when that is whole."""
        self._next[place] = offset + 1
        rollout, is_evidence = record["rollout_id"], place.startswith(EVIDENCE)
        if f"rollout {rollout}" in self._seen or (is_evidence and record["closing"] is None):
            return
        if is_evidence:
            self._closings.setdefault(rollout, (place, offset, record))
        else:
            self._rows.setdefault(rollout, {}).setdefault(hashlib.sha256(body).hexdigest(), (place, offset, record))
        if rollout in self._closings:
            closing = self._closings[rollout][2]["closing"]
            listed = [each["digest"] for each in closing["emitted"] if each["topic"] == self._topic]
            if self._rows.get(rollout, {}).keys() >= set(listed):
                yield from self._whole(rollout, listed)

    def _whole(self, rollout: str, listed: list[str]) -> Iterator[dict[str, Any]]:
        """Hand out a rollout. Until its last row is done all of it is read again; rows that no evidence lists are dropped."""
        closing_place, closing_offset, _ = self._closings.pop(rollout)
        rows = self._rows.pop(rollout, {})
        places: Places[Any] = [
            [closing_place, closing_offset],
            *([place, offset] for place, offset, _ in rows.values()),
        ]
        after = {place: self._next[place] for place, _ in places}
        for place, offset, _ in (
            *self._closings.values(),
            *(each for held in self._rows.values() for each in held.values()),
        ):
            if place in after:
                after[place] = min(after[place], offset)
        before = dict(after)
        for place, offset in places:
            before[place] = min(before[place], offset)
        left = [rows[digest] for digest in dict.fromkeys(listed) if rows[digest][2]["record_id"] not in self._seen]
        is_done = self._remember(f"rollout {rollout}", places)
        for number, (place, offset, row) in enumerate(left, 1):
            done = self._remember(row["record_id"], [[place, offset]])
            yield _at(row, before, done) if number < len(left) else _at(row, after, {**done, **is_done})

    def _remember(self, name: str, places: Places[Any]) -> dict[str, Places[Any]]:
        self._seen[name] = places
        if len(self._seen) > self._limit:
            del self._seen[next(iter(self._seen))]
        return {name: places}


def _at(row: dict[str, Any], after: dict[str, int], done: dict[str, Places[Any]]) -> dict[str, Any]:
    """A row with its position: JSON text, so that tables of rows have a plain column."""
    return {**row, "position": json.dumps({"from": after, "done": done})}


class _Codec:
    """Avro bodies behind a header: Confluent's (0x00, id) with a registry, Avro's single-object one without."""

    def __init__(self, registry: str | Callable[[int], str] | None, schemas: str | Path | None) -> None:
        self._registry = registry
        self._by_header: dict[bytes, Any] = {}
        for path in sorted(Path(schemas).glob("*.avsc")) if schemas is not None else ():
            schema = json.loads(path.read_text("utf-8"))
            mark = fastavro.schema.fingerprint(fastavro.schema.to_parsing_canonical_form(schema), "CRC-64-AVRO")
            self._by_header[b"\xc3\x01" + bytes.fromhex(mark)] = fastavro.parse_schema(schema)

    def decode(self, value: bytes) -> tuple[bytes, dict[str, Any]]:
        """The body, and the record in it."""
        size = 5 if value[:1] == b"\x00" else 10
        header, body = value[:size], value[size:]
        if header not in self._by_header:
            self._by_header[header] = fastavro.parse_schema(self._fetch(header))
        record: Any = fastavro.schemaless_reader(io.BytesIO(body), self._by_header[header], None)
        return body, record

    def _fetch(self, header: bytes) -> Any:
        if header[:1] != b"\x00":
            raise ValueError(
                "a record without a registry's id: name the folder of the schemas (schemas/avro) in `schemas`"
            )
        number = int.from_bytes(header[1:], "big")
        if self._registry is None:
            raise ValueError(f"a record of schema {number}: name the schema registry in `registry`")
        if callable(self._registry):
            return json.loads(self._registry(number))
        with urlopen(f"{self._registry.rstrip('/')}/schemas/ids/{number}", timeout=30) as answer:  # noqa: S310
            return json.loads(json.load(answer)["schema"])


def chat(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Messages of a row as chat templates and TRL read them: without the fields that do not apply."""
    kept = ("reasoning_content", "tool_calls", "tool_call_id", "name")
    return [
        {"role": each["role"], "content": each["content"], **{name: each[name] for name in kept if each.get(name)}}
        for each in messages
    ]


def tokens(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The token streams of a row, with the columns of tokens-parquet: nothing needs to be tokenised to train on them.

    `prompt_ids` is everything before the first sampled token. `loss_mask` and `logprobs` have a place for each of `response_ids`: 1 and a
    number where the policy sampled it, 0 and None elsewhere; `logprobs` is None where the engine returned none. A row may have several
    streams: each counts with the reward of its branch. Call done(row) after the last one.
    """
    group = hashlib.sha256(f"{row['rollout_id']}\0{row['task']}".encode()).hexdigest()[:32]
    kept = ("reward", "advantage", "rollout_id", "branch_index", "sequence", "record_id")
    found = []
    for number, stream in enumerate(row.get("streams") or ()):
        ids, mask, known = list(stream["token_ids"]), list(stream["loss_mask"]), iter(stream["logprobs"])
        first = mask.index(1) if 1 in mask else len(mask)
        versions = list(dict.fromkeys(span["version"] for span in stream["policy_versions"]))
        found.append(
            {
                "prompt_ids": ids[:first],
                "response_ids": ids[first:],
                "loss_mask": mask[first:],
                "logprobs": [next(known) if bit else None for bit in mask[first:]] if stream["logprobs"] else None,
                "policy_version": versions[0] if len(versions) == 1 else None,
                "policy_versions": [dict(span) for span in stream["policy_versions"]],
                "group_id": group,
                "stream": number,
                **{name: row.get(name) for name in kept},
            }
        )
    return found


def functions(tools: str, messages: list[dict[str, Any]]) -> str:
    """The tools of a row in OpenAI's shape, as JSON text: those that were offered, then those that were called without an offer."""
    found: dict[str, Any] = {}
    for entry in json.loads(tools or "[]"):
        told = {"name": entry} if isinstance(entry, str) else (entry.get("function") or entry)
        if not told.get("name"):
            continue
        schema = next((told[key] for key in ("parameters", "input_schema", "inputSchema") if told.get(key)), None)
        more = {key: told[key] for key in ("description", "strict") if told.get(key) is not None}
        found.setdefault(told["name"], {"name": told["name"], **more, "parameters": schema or dict(_ANY)})
    for each in messages:
        for call in each.get("tool_calls") or ():
            found.setdefault(call["function"]["name"], {"name": call["function"]["name"], "parameters": dict(_ANY)})
    made = [{"type": "function", "function": each} for each in found.values()]
    return json.dumps(made, ensure_ascii=False, separators=(",", ":"))


_ANY = {"type": "object", "properties": {}}
