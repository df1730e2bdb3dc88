"""Committed schemas: equal to the models, and able to read every earlier version."""

import json
import shutil
from pathlib import Path

import fastavro

from schemas import versions
from schemas.codec.body import decode, encode
from schemas.events import AgentEvents
from schemas.verdicts import BuildVerdict


def test_models_and_committed_files_agree() -> None:
    """Every model has its Avro committed, and every version reads all earlier ones."""
    assert versions.check() == []


def test_a_changed_model_is_seen(tmp_path: Path) -> None:
    """A committed file that differs from its model is reported with what to do."""
    shutil.copytree(versions.FOLDER, tmp_path, dirs_exist_ok=True)
    newest = f"BuildVerdict.v{versions.latest(BuildVerdict).number}.avsc"
    path = tmp_path / newest
    schema = json.loads(path.read_text())
    schema["fields"] = schema["fields"][:-1]
    path.write_text(json.dumps(schema))
    versions._committed.cache_clear()
    assert versions.check(tmp_path) == [f"BuildVerdict: the model differs from {newest}; run `braid schemas write`"]


def test_a_breaking_version_is_seen(tmp_path: Path) -> None:
    """A new version that cannot read what an earlier one wrote is reported, whatever lies between."""
    shutil.copytree(versions.FOLDER, tmp_path, dirs_exist_ok=True)
    first = json.loads((tmp_path / "JudgeVote.v1.avsc").read_text())
    without_id = first | {"fields": [field for field in first["fields"] if field["name"] != "vote_id"]}
    (tmp_path / "JudgeVote.v1.avsc").write_text(json.dumps(without_id))
    (tmp_path / "JudgeVote.v2.avsc").write_text(json.dumps(first))
    versions._committed.cache_clear()
    assert [problem.partition(":")[0] for problem in versions.check(tmp_path)] == ["JudgeVote.v2 cannot read v1"]


def test_an_older_writer_is_read_with_defaults() -> None:
    """Bytes of a version that lacked an optional field decode with its default."""
    schema = versions.generate(AgentEvents)
    older = schema | {"fields": [field for field in schema["fields"] if field["name"] != "workspace"]}
    record = AgentEvents(rollout_id="r", branch_index=3)
    parsed = fastavro.parse_schema(older)
    from io import BytesIO

    out = BytesIO()
    fastavro.schemaless_writer(out, parsed, record.plain())
    assert decode(AgentEvents, out.getvalue(), foreign=parsed) == record
    assert out.getvalue() != encode(record)


def test_fingerprints_are_those_of_the_avro_specification() -> None:
    """The single-object header of a known schema is the one that the specification's own example gives."""
    assert fastavro.schema.fingerprint('"int"', "CRC-64-AVRO") == "8f5c393f1ad57572"


def test_wording_makes_no_new_version(tmp_path: Path) -> None:
    """A committed file with other descriptions agrees with its model: bytes depend on names and types."""
    shutil.copytree(versions.FOLDER, tmp_path, dirs_exist_ok=True)
    path = tmp_path / f"BuildVerdict.v{versions.latest(BuildVerdict).number}.avsc"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"doc": "In other words."}))
    versions._committed.cache_clear()
    assert versions.check(tmp_path) == []
    assert versions.write(tmp_path) == []
