"""The whole corpus of secrets through the product: whatever leaves it, none of them is in it; look-alikes are untouched."""

import asyncio
import json
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import structlog

from agents.formats import FORMATS
from streams.cluster.config import Settings
from streams.cluster.connections import partition_of, start_producer
from streams.jobs.export.export import export
from streams.jobs.export.recipe import Recipe
from streams.jobs.ingest import ingest_files
from streams.jobs.run.run import run_files
from streams.log.file_reader import FileReader
from streams.log.input_lines import Rejected
from streams.log.kafka_reader import KafkaReader
from streams.log.reader import LogReader
from streams.log.topics import AGENT_EVENTS, CLOSURES, COMPLIANCE_EVALS, DEAD_LETTERS, TOPICS
from tests.agents.formats.rollouts import Line, encoded, opening
from tests.agents.redaction import secrets_corpus as corpus
from tests.live import Worker, read_all, until, until_closed
from tests.log_lines import configured_logs
from tests.streams.views.conftest import Braid, braid  # noqa: F401 - a fixture

SECRETS = [(each.text, f"here it is: {each.text} ok") for each in corpus.FORMATS]
SECRETS += [(each.secret, each.text) for each in corpus.IN_CONTEXT]

SHORT = 12
"""Names and addresses of the corpus are words that may stand elsewhere; what is longer is looked for."""


def needles() -> list[bytes]:
    """Strings that must be nowhere: every long line of every secret, as text and as JSON writes it."""
    lines = {
        line for secret, _ in SECRETS for line in secret.splitlines() if len(line) >= SHORT and "PRIVATE" not in line
    }
    allowed = "\n".join(corpus.LOOK_ALIKES)
    found = {line for line in lines if line not in allowed}
    assert len(found) >= 60
    return sorted({line.encode() for line in found} | {json.dumps(line)[1:-1].encode() for line in found})


NEEDLES = needles()


def branch(rollout_id: str, index: int, texts: Iterable[str], answer: str, *, passes: bool) -> list[Line]:
    """A branch that has each text in a call's arguments, in its output, in what the model says and in an error."""
    events: list[dict[str, Any]] = [
        {"channel": "text", "event": "run_start", "data": {"task": "x", "agentConfig": {"model": "m"}}}
    ]
    for number, text in enumerate(texts):
        call = {"toolName": "shell", "callId": f"c{number}", "stepIndex": number}
        failure = {"error": {"code": "E", "message": text}} if number % 3 == 0 else {}
        events += [
            {"channel": "thinking", "event": "thinking_delta", "data": {"delta": text, "step": number}},
            {
                "channel": "tool",
                "event": "tool_call",
                "data": call | {"args": {"command": text, "deep": [{"x": text}]}},
            },
            {"channel": "tool", "event": "tool_result", "data": call | {"output": text} | failure},
        ]
    events.append({"channel": "text", "event": "final_answer", "data": {"answer": f"{index}: {answer}"}})
    place = {"rollout_id": rollout_id, "branch_index": index}
    lines: list[Line] = [{"type": "event", **place, "seq": seq, "event": event} for seq, event in enumerate(events)]
    outcome = {"status": "success", "exit_code": 0} if passes else {"status": "failure", "exit_code": 1}
    return [*lines, {"type": "build", **place, **outcome, "stderr": answer}]


def secret_lines() -> list[Line]:
    """One rollout: every secret everywhere, in the task and the system prompt too."""
    texts = [text for _, text in SECRETS]
    everything = "\n".join(texts)
    tools = [{"name": "shell", "description": texts[0]}]
    lines = [opening("secrets", 3, task=f"Fix it: {everything}", system_prompt=everything, tools=tools)]
    for index, passes in enumerate((True, True, False)):
        lines += branch("secrets", index, texts, everything, passes=passes)
    return lines


def look_alike_lines() -> list[Line]:
    texts = list(corpus.LOOK_ALIKES)
    lines = [opening("harmless", 2, task=f"Clone and fetch: {texts[0]}", system_prompt="\n".join(texts))]
    return [
        *lines,
        *branch("harmless", 0, texts, "\n".join(texts), passes=True),
        *branch("harmless", 1, texts[1:], "no", passes=False),
    ]


def found_in(content: bytes) -> list[bytes]:
    return [needle for needle in NEEDLES if needle in content]


def everything_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            yield str(path), path.read_bytes()


def take(source: LogReader, out: Path, name: str, kind: Any = None) -> None:
    counts = asyncio.run(export(source, out, Recipe.of(FORMATS[name], kind)))
    assert counts.rollouts
    # Nothing was left to be removed, although this log was made a moment ago and nothing was looked at twice.
    assert counts.redacted == 0


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of `braid run` on all secrets and look-alikes."""
    place = tmp_path_factory.mktemp("secrets")
    (place / "in.ndjson").write_bytes(encoded([*secret_lines(), *look_alike_lines()]))
    counts = run_files([place / "in.ndjson"], place / "run", Settings(), None)
    assert (counts.sft, counts.passes, counts.bad_lines) == (3, 3, 0)
    return place / "run"


def test_no_secret_leaves_a_run(ran: Path, tmp_path: Path) -> None:
    """`braid run`, its files, and every format in every kind of file."""
    lines = dict(everything_in(ran))
    checked = {name: content for name, content in lines.items() if name.endswith(".jsonl")}
    assert len(checked) >= 7
    for name, content in checked.items():
        assert found_in(content) == [], name
    for name, form in FORMATS.items():
        for kind in form.files:
            if name != "dsse":  # has no words of an agent, and needs a key
                take(FileReader(ran), tmp_path / "out" / f"{name}-{kind}", name, kind)
    for name, content in everything_in(tmp_path / "out"):
        assert found_in(content) == [], name


@pytest.mark.parametrize(
    "name",
    ["openai-sft", *(pytest.param(name, marks=pytest.mark.long) for name in ("trl-dpo", "rl-transitions"))],
)
def test_redacting_what_a_run_made_once_more_finds_nothing(name: str, ran: Path, tmp_path: Path) -> None:
    """Rows without the mark of these rules are looked at again, and nothing is found: skipping that loses nothing."""
    from tests.streams.jobs.export.test_export import rewritten

    unmarked = rewritten(ran, tmp_path / "old", lambda _, found: [each._replace(headers=()) for each in found])
    take(FileReader(unmarked), tmp_path / "again", name)
    take(FileReader(ran), tmp_path / "once", name)
    again, once = [(tmp_path / way / "train-00000.jsonl").read_bytes() for way in ("again", "once")]
    assert again == once


def test_rows_made_without_redaction_are_redacted_when_they_leave(tmp_path: Path) -> None:
    """Switched off in the worker, it is done by the export: such rows have no mark."""
    (tmp_path / "in.ndjson").write_bytes(encoded(secret_lines()))
    plain = Settings().model_copy(update={"emission": Settings().emission.model_copy(update={"redact": False})})
    run_files([tmp_path / "in.ndjson"], tmp_path / "run", plain, None)
    assert found_in((tmp_path / "run" / "sft.jsonl").read_bytes())
    counts = asyncio.run(export(FileReader(tmp_path / "run"), tmp_path / "out", Recipe.of(FORMATS["trl-sft"], None)))
    assert counts.redacted == counts.rows == 2
    assert found_in((tmp_path / "out" / "train-00000.jsonl").read_bytes()) == []


def test_look_alikes_are_untouched(tmp_path: Path) -> None:
    """Outputs, arguments, words and answers come back byte for byte, and nothing is counted as removed."""
    (tmp_path / "in.ndjson").write_bytes(encoded(look_alike_lines()))
    run_files([tmp_path / "in.ndjson"], tmp_path / "run", Settings(), None)
    (row,) = (orjson.loads(line) for line in (tmp_path / "run" / "sft.jsonl").read_bytes().splitlines())
    assert row["redactions"] == {}
    calls = [call for said in row["messages"] for call in said.get("tool_calls", ())]
    assert [json.loads(call["function"]["arguments"])["command"] for call in calls] == list(corpus.LOOK_ALIKES)
    results = [said["content"] for said in row["messages"] if said["role"] == "tool"]
    assert [text.partition("\nerror E: ")[0] for text in results] == list(corpus.LOOK_ALIKES)
    assert row["messages"][0]["content"] == "\n".join(corpus.LOOK_ALIKES)
    assert row["messages"][-1]["content"] == "0: " + "\n".join(corpus.LOOK_ALIKES)


def test_secrets_leave_log_lines_wherever_they_stand(capsys: pytest.CaptureFixture[str]) -> None:
    """In the message, in a field, in a nested value, in a traceback, and in the logs of libraries."""
    secret = corpus.FORMATS[0].text
    with configured_logs():
        log = structlog.get_logger()
        try:
            int(f"refused {secret}")
        except ValueError:
            log.exception("failed", said=f"failed with {secret}", field=secret, deep={"a": [secret]})
            logging.getLogger("library").exception("failed with %s", secret)
    shown = capsys.readouterr().err
    assert shown.count("ValueError: invalid literal") == 2
    assert secret not in shown


@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_no_secret_leaves_a_worker(settings: Settings, tmp_path: Path, braid: Braid) -> None:  # noqa: F811
    """Topics, exports, the worker's log, what `braid show` and `braid dead-letters` print: whatever a live worker made."""
    (tmp_path / "in.ndjson").write_bytes(encoded([*secret_lines(), *look_alike_lines()]))
    worker = Worker(
        settings, tmp_path / "worker.log", BRAID_EMISSION__JUDGE__KIND="scripted", BRAID_CLOSING__JUDGE_DEADLINE_MS="6000",
        BRAID_LOG_LEVEL="debug",
    )  # fmt: skip
    with worker:
        asyncio.run(worker.ready())
        asyncio.run(ingest_files([tmp_path / "in.ndjson"], settings, Rejected(None), close=False))
        asyncio.run(until_closed(settings, {"secrets", "harmless"}, 90))
        asyncio.run(_spoil(settings, tmp_path))
        asyncio.run(until(lambda: _letters(settings, 4), "four dead letters", 60))
    derived = [topic for topic in TOPICS if topic.kind not in ("fact", "raw", "letters")] + [CLOSURES]
    derived.remove(COMPLIANCE_EVALS)  # no constraints here
    for topic in derived:
        stored = asyncio.run(read_all(settings, settings.prefix + topic.name))
        assert stored, topic.name
        assert found_in(b"\n".join(each.value or b"" for each in stored)) == [], topic.name
    for name in ("trl-dpo", "rollout-wire", "atif"):
        take(KafkaReader(settings), tmp_path / "out" / name, name)
    for name, content in everything_in(tmp_path / "out"):
        assert found_in(content) == [], name
    log = (tmp_path / "worker.log").read_bytes()
    assert b'"event": "closed"' in log
    assert found_in(log) == []
    _look(settings, braid)


def _look(settings: Settings, braid: Braid) -> None:  # noqa: F811
    """The pages that people are shown."""
    listed = braid(settings, "dead-letters", "list", "--json")
    letters: Any = listed.json["letters"]
    assert len(letters) >= 4
    shown = [listed, braid(settings, "dead-letters", "list"), braid(settings, "rollouts", "--json")]
    shown += [braid(settings, "show", "secrets", *more) for more in ((), ("--json",))]
    for letter in letters:
        shown += [braid(settings, "dead-letters", "show", letter["id"], *more) for more in ((), ("--json",))]
    for each in shown:
        assert each.code == 0, each.err
        assert found_in(each.out.encode()) == []
        assert found_in(each.err.encode()) == []


async def _letters(settings: Settings, count: int) -> bool:
    return len(await read_all(settings, settings.prefix + DEAD_LETTERS.name)) >= count


async def _spoil(settings: Settings, folder: Path) -> None:
    """Late events, a late verdict, and bytes that are no record, each full of secrets."""
    everything = "\n".join(text for _, text in SECRETS)
    late = [line for line in secret_lines() if line["type"] == "event" and line["branch_index"] == 0][:2]
    status = {"channel": "text", "event": "status", "data": {"x": everything}}
    moved = [line | {"seq": 5000 + place, "event": status} for place, line in enumerate(late)]
    moved += [late[0] | {"branch_index": 7}]
    check = {"type": "check", "rollout_id": "secrets", "branch_index": 0, "name": "lint", "status": "fail"}
    moved += [check | {"hint": everything}]
    (folder / "late.ndjson").write_bytes(encoded(moved))
    await ingest_files([folder / "late.ndjson"], settings, Rejected(None), close=False)
    producer = await start_producer(settings)
    try:
        for value in (everything.encode(), b"\x00\x00\x00\x00\x01" + everything.encode()):
            await producer.send_and_wait(
                settings.prefix + AGENT_EVENTS.name,
                value,
                key=b"secrets",
                partition=partition_of("secrets", settings.partitions),
            )
    finally:
        await producer.stop()
