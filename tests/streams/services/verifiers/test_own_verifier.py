"""The example of a verifier of one's own, as the documentation shows it: a shell script, the gateway, a verifier's token."""

import os
import subprocess
from pathlib import Path

import pytest
from pydantic import SecretStr

from agents.workspace.files import File
from agents.workspace.snapshot import pack
from schemas.verdicts import CheckVerdict
from streams.cluster.config import Settings, Token
from streams.log.topic_setup import ensure_topics
from streams.log.topics import CHECK_VERDICTS
from tests.live import records_of
from tests.streams.services.gateway.serving import serving, with_gateway

pytestmark = pytest.mark.kafka

SCRIPT = Path(__file__).parents[4] / "docs" / "examples" / "line_length_verifier.sh"


async def test_a_shell_script_is_a_verifier_and_an_agent_is_none(settings: Settings, tmp_path: Path) -> None:
    """Pass, fail with a hint, unknown for a snapshot that is none; with an agent's token nothing is written."""
    await ensure_topics(settings)
    (tmp_path / "good.tar").write_bytes(pack({"a.py": File(b"x = 1\n")}))
    (tmp_path / "long.tar").write_bytes(pack({"a.py": File(b"x" * 121 + b"\n"), "b.txt": File(b"y" * 500)}))
    (tmp_path / "none.tar").write_bytes(b"no archive")
    tokens = tuple(
        Token(token=SecretStr(f"{role}-token"), roles=(role,))  # type: ignore[arg-type]
        for role in ("verifier", "agent")
    )
    with serving(with_gateway(settings, tokens=tokens)) as url:

        def verify(branch: int, name: str, role: str = "verifier") -> subprocess.CompletedProcess[str]:
            env = os.environ | {"GATEWAY": url, "TOKEN": f"{role}-token"}
            command = [SCRIPT, "r1", str(branch), tmp_path / name]
            return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

        assert [verify(branch, f"{name}.tar").returncode for branch, name in enumerate(("good", "long", "none"))] == [
            0,
            0,
            0,
        ]
        refused = verify(3, "good.tar", "agent")
        assert refused.returncode != 0
        assert "verifier" in refused.stdout
    found = [each for each in await records_of(settings, CHECK_VERDICTS) if isinstance(each, CheckVerdict)]
    said = sorted((each.branch_index, each.name, each.status, each.hint) for each in found)
    assert said == [
        (0, "line-length", "pass", ""),
        (1, "line-length", "fail", "1 lines are longer than 120 characters"),
        (2, "line-length", "unknown", "the snapshot cannot be read"),
    ]
