"""Where we reach into Faust and aiokafka: an upgrade that moves one of these names is seen here first."""

import inspect
from importlib.metadata import version
from pathlib import Path

import faust
import pytest
from aiokafka.structs import ConsumerRecord
from faust.tables.recovery import Recovery
from faust.transport.consumer import Consumer as BaseConsumer
from faust.transport.drivers import aiokafka as driver
from faust.types.tuples import TP

from streams.cluster.config import Settings
from streams.log.topics import FACTS
from streams.services.live.loop import Loop
from streams.services.live.seams import AckedTable, SafeConsumer, SafeTransport


def test_the_libraries_are_those_that_were_proved() -> None:
    """The live loop was killed a hundred times on exactly these versions."""
    found = {name: version(name) for name in ("faust-streaming", "aiokafka", "mode-streaming")}
    assert found == {"faust-streaming": "0.15.3", "aiokafka": "0.14.0", "mode-streaming": "0.7.1"}


@pytest.mark.parametrize(
    "name", ["resume_partitions", "resume_flow", "stop_flow", "_getmany", "_to_message", "seek_to_committed"]
)
def test_what_the_safe_consumer_overrides_exists(name: str) -> None:
    """A method that is overridden and no longer called would be no protection at all."""
    assert name in vars(SafeConsumer)
    assert any(name in vars(each) for each in driver.Consumer.__mro__ if each is not SafeConsumer)


def test_polls_are_called_as_we_override_them() -> None:
    """`_getmany` takes `active_partitions` and `timeout`, by those names."""
    base = next(vars(each)["_getmany"] for each in driver.Consumer.__mro__ if "_getmany" in vars(each))
    assert list(inspect.signature(base).parameters)[1:] == ["active_partitions", "timeout"]
    assert "active_partitions=" in inspect.getsource(BaseConsumer)


async def test_a_poll_of_a_source_partition_is_one_message() -> None:
    """Its records go through Faust's queues together and untouched; a table's records go one by one."""
    loop = Loop(Settings(kafka="127.0.0.1:1"), FACTS)
    consumer = SafeConsumer.__new__(SafeConsumer)
    consumer.app = loop.app
    tp = TP(loop.sources[0], 3)
    records = [
        ConsumerRecord(tp.topic, tp.partition, offset, 1_700, 0, b"k", b"v%d" % offset, None, 1, 2, ())
        for offset in (7, 8)
    ]
    whole = consumer._to_message(tp, records)
    assert (whole.tp, whole.offset, whole.timestamp, whole.value) == (tp, 8, 1.7, records)
    assert whole.generation_id == loop.app.consumer_generation_id
    alone = consumer._to_message(tp, records[0])
    assert (alone.offset, alone.value) == (7, b"v7")


def test_an_app_makes_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory for each slot would stay behind in /tmp, or in the directory that the worker was started in."""
    monkeypatch.chdir(tmp_path)
    assert "self._create_directories()" in inspect.getsource(faust.App)
    Loop(Settings(kafka="127.0.0.1:1"), FACTS).app._create_directories()
    assert not list(tmp_path.iterdir())


def test_what_the_loop_commits_with_exists() -> None:
    """`_commit` takes a mapping of partitions to offsets."""
    assert list(inspect.signature(driver.Consumer._commit).parameters)[1:] == ["offsets"]


def test_recovery_keeps_its_offsets_where_we_clear_them() -> None:
    """The whole changelog is read again after a rebalance only because these are forgotten."""
    assert "active_offsets" in inspect.getsource(Recovery)


async def test_tables_hold_their_rows_where_we_look() -> None:
    """A row that is put is in memory at once; one that is only shown is not."""
    loop = Loop(Settings(kafka="127.0.0.1:1"), FACTS)
    assert isinstance(loop.marks, AckedTable)
    assert loop.marks.rows() is loop.marks.data.data
    assert isinstance(loop.app, faust.App)
    loop.finish(0, "r", b"mark")
    assert loop.marks.rows() == {"r": b"mark"}


async def test_sources_wait_for_the_flow_and_tables_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a rebalance a source partition is resumed only when the consumer stands at its committed offset."""
    loop = Loop(Settings(kafka="127.0.0.1:1"), FACTS)
    assert isinstance(loop.app.transport, SafeTransport)
    consumer = SafeConsumer.__new__(SafeConsumer)  # without its thread: only the bookkeeping is looked at
    consumer.app = loop.app
    source, table = TP(loop.sources[0], 0), TP(loop.marks.changelog_topic.get_topic_name(), 0)
    loop.app.tables.changelog_topics.add(table.topic)
    assert (consumer.is_source(source), consumer.is_source(table)) == (True, False)
    resumed: list[set[TP]] = []
    monkeypatch.setattr(driver.Consumer, "resume_partitions", lambda _self, tps: resumed.append(set(tps)))
    monkeypatch.setattr(driver.Consumer, "resume_flow", lambda _self: None)
    consumer.resume_partitions({source, table})
    assert resumed == [{table}]
    consumer.resume_flow()
    assert resumed == [{table}, {source}]
