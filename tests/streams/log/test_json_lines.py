"""JSON lines of records: parts that records share are written once, and readers do not notice."""

from pathlib import Path

from agents.importers.lines import LineReader
from agents.rollouts.closure import close_now
from agents.rollouts.emission import emit
from agents.rollouts.rollout import Rollout
from agents.rollouts.settlement import settle_now
from schemas.closures import Closure
from streams.cluster.config import Settings
from streams.log.json_lines import SINK_FILES, Outputs, json_line
from tests.streams.jobs.test_run_processes import wire


def test_records_written_together_are_those_written_alone(tmp_path: Path) -> None:
    settings, rollout, reader = Settings(), Rollout("r1"), LineReader()
    for branch in range(4):
        for place, fact in enumerate(reader.read_object(wire(1, branch))):
            rollout.add(fact, 1, ("facts", 0, 2 * branch + place))
    rollout.add(Closure(settled=settle_now(rollout, settings.emission, settings.closing)), 1, ("closures", 0, 0))
    rollout.add(Closure(closed=close_now(rollout)), 1, ("closures", 0, 1))
    made = emit(rollout)
    records = (*made.branches, made.ranking, *made.rows, *made.rejected, *made.evidence)
    with Outputs(tmp_path, SINK_FILES) as outputs:
        outputs.write(records)
        outputs.write(records[-1:])  # again
    assert {type(each).__name__ for each in made.rows} == {"SftRecord", "DpoRecord", "PpoRecord"}
    for kind, name in SINK_FILES.items():
        alone = b"".join(json_line(each) for each in records if type(each) is kind)
        assert (tmp_path / name).read_bytes() == alone
