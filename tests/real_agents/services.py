"""Worker, gateway and proxy as processes of their own before a played API, as a user starts them."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from streams.cluster.config import Settings
from tests.live import Worker
from tests.processes import Forked, run_braid
from tests.real_agents.agent_runs import Bases

START_S = 60


class Services(NamedTuple):
    """Where everything is."""

    gateway: str
    proxy: str
    env: dict[str, str]
    """Configures `braid`."""

    def bases(self, rollout: str, branch: int) -> Bases:
        """The base URLs of a branch."""
        place = f"{self.proxy}/r/{rollout}/b/{branch}"
        return Bases(f"{place}/openai/v1", f"{place}/anthropic")


@contextmanager
def services(settings: Settings, folder: Path, upstream: str) -> Iterator[Services]:
    """Run a worker, a gateway and a proxy; the last two on free ports."""
    env = {
        "BRAID_KAFKA": settings.kafka, "BRAID_REGISTRY": settings.registry, "BRAID_PREFIX": settings.prefix,
        "BRAID_PARTITIONS": str(settings.partitions), "BRAID_STATE_DIR": str(settings.state_dir or folder / "state"),
        "BRAID_PROXY__SPOOL": str(folder / "spool"),
    }  # fmt: skip
    done = run_braid("up", env=os.environ | env)
    assert done.returncode == 0, done.stderr
    with ExitStack() as running:
        running.enter_context(Worker(settings, folder / "worker.log", **env))
        upstreams = [f"--upstream={name}={upstream}" for name in ("openai", "anthropic")]
        gateway = running.enter_context(_service(("gateway",), env, folder / "gateway.json"))
        proxy = running.enter_context(_service(("proxy", *upstreams), env, folder / "proxy.json"))
        yield Services(gateway, proxy, env)


@contextmanager
def _service(words: tuple[str, ...], env: dict[str, str], out: Path) -> Iterator[str]:
    """Run a service on a free port; gives its address."""
    process = Forked((*words, "--port", "0", "--json"), os.environ | env, out, out.with_suffix(".log"))
    try:
        yield _address(process, out)
    finally:
        process.terminate()
        process.wait(30)


def _address(process: Forked, out: Path) -> str:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        said = out.read_text()
        if said.endswith("}\n"):
            return str(json.loads(said)["url"])
        time.sleep(0.05)
    raise AssertionError(f"did not start: {out.with_suffix('.log').read_text()[-2000:]}")
