"""The page "Connect an instrumented agent", run: its blocks as they stand, in one shell."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streams.cluster.config import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "otlp.md").read_text("utf-8")


@pytest.mark.kafka
@pytest.mark.timeout(200)
def test_the_blocks_of_the_page_end_in_events_of_the_branch(settings: Settings, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    script = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"
    script += "\n".join(re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL))
    script = script.replace("braid otlp &", f"braid otlp --port {port} &").replace(
        "127.0.0.1:4318", f"127.0.0.1:{port}"
    )
    env = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "BRAID_KAFKA": settings.kafka,
        "BRAID_REGISTRY": settings.registry, "BRAID_PREFIX": settings.prefix, "BRAID_PARTITIONS": str(settings.partitions),
        "BRAID_STATE_DIR": str(tmp_path / "state"), "BRAID_CAPTURE__TRACE_IDLE_S": "2",
    }  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "The capital of France" in done.stdout
    assert "{}" in done.stdout, "the receiver's answer"
