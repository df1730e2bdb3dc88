"""Possible faults of this machine and its configuration, each with its remedy. Nothing is created or
changed."""

import hashlib
import platform
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from agents.evidence.keys import DEVELOPMENT_FILE, DEVELOPMENT_PREFIX, KeyFileError, default_directory, load_key
from agents.fork.browser_adapter import find_browser
from agents.models.model_error import ModelSetupError
from agents.models.service import PROVIDERS, ServiceKind, ServiceOptions, check_service
from schemas.compiled import compiled
from streams.cluster import broker
from streams.cluster.broker import BrokerError, artifacts, places
from streams.cluster.broker.java import find_java
from streams.cluster.config import ConfigError, Settings
from streams.log.terminal_text import line, listed
from streams.services.web.auth import check_bind
from streams.views.configuration import unknown_variables

OLDEST_PYTHON = (3, 11)

GIB = 1024**3
DISK_PROBLEM = GIB
DISK_WARNING = 5 * GIB
"""Kafka stops taking records on a full disk, and a log that is kept forever only grows."""

Result = Literal["ok", "warning", "problem", "skipped"]


class Check(NamedTuple):
    """The result of one check."""

    name: str
    result: Result
    detail: str
    advice: str = ""
    """The advice."""


def machine_checks(settings: Settings | None, environment: Mapping[str, str]) -> list[Check]:
    """All checks that need no cluster; `settings` is None if they are invalid."""
    local = settings is None or not settings.kafka
    state = (settings.state_dir if settings is not None else None) or places.state_dir()
    cache = (settings.cache_dir if settings is not None else None) or places.cache_dir()
    jars = _has_jars(cache)
    checks = [
        *check_variables(environment),
        check_python(),
        check_compiled(),
        check_java(needed=local),
        check_maven(needed=local and not jars),
        check_cache(cache, present=jars, needed=local),
        check_broker(state, needed=local),
        check_disk(state),
    ]
    if settings is not None:
        checks += [
            check_key(settings),
            check_trust(settings),
            check_gateway(settings),
            check_browser(settings),
            check_judge(settings, environment),
        ]
        checks += check_models(settings, environment)
        checks += check_weights(settings)
    return checks


def check_variables(environment: Mapping[str, str]) -> list[Check]:
    """Variables without a setting: one that resembles a setting is a typo, so the running configuration is not the
    intended one.
    """
    found = unknown_variables(environment)
    if not found:
        return [Check("variables", "ok", "every BRAID_ variable is known")]
    return [
        Check(
            "variables",
            "warning",
            f"{line(name)} is set, and nothing reads it",
            "unset it if it is not for another program",
        )
        if meant is None
        else Check("variables", "problem", f"{line(name)} is set, and nothing reads it", f"did you mean {meant}?")
        for name, meant in found
    ]


def check_python() -> Check:
    """The interpreter."""
    detail = f"Python {platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        return Check("python", "problem", detail, "install Python 3.11 or newer")
    return Check("python", "ok", detail)


def check_compiled() -> Check:
    """Whether compiled modules are used: Python gives the same bytes without them, and takes longer."""
    modules, changed, failed = compiled()
    if changed:
        more = f" and {len(changed) - 1} more" if changed[1:] else ""
        detail = f"compiled from other sources: {line(changed[0])}{more}"
        return Check("compiled", "problem", detail, "`make setup`, or `make plain` to run without compiled modules")
    if modules:
        return Check("compiled", "ok", f"{len(modules)} modules")
    reason = f" ({line(failed.splitlines()[0], 300)})" if failed else ""
    return Check(
        "compiled",
        "warning",
        f"no: Python and fastavro give the same and take longer{reason}",
        "install a C compiler and Python's headers, then install the package again",
    )


def check_java(*, needed: bool) -> Check:
    """The Java that a local broker runs on."""
    try:
        java = find_java()
    except BrokerError as error:
        if not needed:
            return Check("java", "ok", "none; not needed, BRAID_KAFKA names a cluster")
        return Check("java", "problem", line(str(error), 300), "install Java 17 or newer, or set BRAID_KAFKA")
    return Check("java", "ok", f"Java {java.version} ({java.executable})")


def check_maven(*, needed: bool) -> Check:
    """Maven, which fetches Kafka once."""
    found = shutil.which("mvn")
    if found:
        return Check("maven", "ok", found)
    if not needed:
        return Check("maven", "ok", "none; not needed, there is nothing to fetch")
    return Check(
        "maven", "problem", "no `mvn` on PATH, and Kafka is not in the cache", "install Maven, or set BRAID_KAFKA"
    )


def check_cache(cache: Path, *, present: bool, needed: bool) -> Check:
    """The jars of Kafka and the registry."""
    if present:
        return Check("cache", "ok", f"Kafka and the registry are in {cache}")
    if not needed:
        return Check("cache", "ok", "empty; not needed, BRAID_KAFKA names a cluster")
    return Check(
        "cache", "warning", f"{cache} does not hold Kafka yet", "`braid broker start` fetches it (about 150 MB)"
    )


def _has_jars(cache: Path) -> bool:
    digest = hashlib.sha256(artifacts.POM.read_bytes()).hexdigest()[:16]
    wanted = (artifacts.KAFKA, artifacts.REGISTRY)
    return all((cache / "jars" / f"{artifact.name}-{digest}").is_dir() for artifact in wanted)


def check_broker(state: Path, *, needed: bool) -> Check:
    """The local broker."""
    services = broker.status(state)
    running = [f"{service.name} at {service.address}" for service in services if service.running]
    if not needed:
        return Check("local broker", "skipped", "not used, BRAID_KAFKA names a cluster")
    if not any(service.running for service in services if service.name == "kafka"):
        return Check("local broker", "problem", f"none runs from {state}", "`braid broker start`, or set BRAID_KAFKA")
    return Check("local broker", "ok", ", ".join(running))


def check_disk(state: Path) -> Check:
    """Room for the log."""
    place = next(folder for folder in (state, *state.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    detail = f"{free / GIB:.1f} GiB free at {place}"
    if free < DISK_PROBLEM:
        return Check("disk", "problem", detail, "make room: Kafka stops when the disk is full")
    if free < DISK_WARNING:
        return Check("disk", "warning", detail, "make room soon: the log is kept for ever")
    return Check("disk", "ok", detail)


def check_key(settings: Settings) -> Check:
    """The key that signs evidence. The development key is not made here."""
    advice = "`braid keys new` makes one; name its file in signing_key (BRAID_SIGNING_KEY)"
    if settings.signing_key:
        path = Path(settings.signing_key).expanduser()
    else:
        path = default_directory() / DEVELOPMENT_FILE
        if not path.exists():
            return Check("signing key", "warning", "a development key will be made on first use", advice)
    try:
        key = load_key(path)
    except KeyFileError as error:
        return Check("signing key", "problem", line(str(error), 300), advice)
    if key.key_id.startswith(DEVELOPMENT_PREFIX):
        return Check("signing key", "warning", f"{key.key_id} is a development key: evidence proves little", advice)
    return Check("signing key", "ok", f"{key.key_id} ({path})")


def check_trust(settings: Settings) -> Check:
    """The keys whose verdicts count. Development keys are not made here."""
    trusted = settings.trusted_verifiers
    if trusted is None:
        return Check(
            "trust",
            "warning",
            "trusted_verifiers is not set: every client that can write to Kafka, an agent, too, can write verdicts that count",
            "name the keys of your verifiers under [trusted_verifiers] (`braid keys show`), or set it to local; see docs/trust.md",
        )
    if trusted == "local":
        return Check("trust", "ok", "verdicts count that the verifier's or the gateway's key of this machine signed")
    if not trusted:
        return Check("trust", "warning", "trusted_verifiers names no key: no verdict counts", "name one, or unset it")
    return Check("trust", "ok", f"verdicts count that {listed(sorted(trusted), 4)} signed")


def check_gateway(settings: Settings) -> Check:
    """Whether the gateway is open to others without tokens."""
    try:
        check_bind(settings.gateway, settings.gateway.tokens)
        check_bind(settings.view, settings.gateway.tokens, "view")
    except ConfigError as error:
        return Check("gateway", "problem", line(str(error), 300), "set gateway.tokens, or gateway.host to 127.0.0.1")
    tokens = len(settings.gateway.tokens)
    where = f"{settings.gateway.host}:{settings.gateway.port}"
    return Check("gateway", "ok", f"{where}, " + (f"{tokens} tokens" if tokens else "no tokens, loopback only"))


def check_browser(settings: Settings) -> Check:
    """The browser of the visual verifier."""
    found = find_browser(settings.verifier.browser)
    if isinstance(found, str):
        what, _, advice = found.partition(": ")
        return Check("browser", "warning", f"{what}; pages will be unknown", advice)
    return Check("browser", "ok", found.program)


def check_weights(settings: Settings) -> list[Check]:
    """Warn of weights under which totals may contradict outcomes; ranks and rewards never do."""
    if settings.emission.totals_follow_outcomes:
        return []
    return [
        Check(
            "weights",
            "warning",
            "the objective does not weigh more than all other components together: the total of a failing branch can reach that "
            "of a passing one, and pairs whose margin is then not positive are left out",
            "raise the weight of the component objective in emission.ranking.weights, unless nothing is ever required",
        )
    ]


def check_models(settings: Settings, environment: Mapping[str, str]) -> list[Check]:
    """Whether the agents' model can be called, if one is configured; `braid fork --model` chooses the protocol."""
    model, kinds = settings.fork.model, sorted(PROVIDERS)
    if not model:
        return []
    missing = {kind: missing_of(kind, model, settings.fork.service(), environment) for kind in kinds}
    ready = [f"--model {kind}" for kind in kinds if not missing[kind]]
    if ready:
        return [Check("fork model", "ok", f"{line(model)}, by {' or '.join(ready)}")]
    lacking = "; ".join(f"{kind}: {missing[kind]}" for kind in kinds)
    return [Check("fork model", "warning", line(lacking, 300), "set the key of the one that is used")]


def missing_of(kind: ServiceKind, model: str, service: ServiceOptions, environment: Mapping[str, str]) -> str:
    """The missing settings of a model; empty if none is missing."""
    try:
        check_service(kind, model, service, environment)
    except ModelSetupError as error:
        return str(error)
    return ""


def check_judge(settings: Settings, environment: Mapping[str, str]) -> Check:
    """Whether the judge can be called, and whether requested scores count: each costs a call in any case."""
    judge, weights = settings.emission.judge, settings.emission.ranking.weights
    if judge.kind in ("anthropic", "openai"):
        missing = missing_of(judge.kind, judge.model, settings.judge.service(), environment)
        if missing or not judge.model:
            missing = missing if judge.model else "no judge model"
            advice = "set emission.judge.model (BRAID_EMISSION__JUDGE__MODEL) and the key; docs/models.md"
            return Check("judge", "warning", f"{judge.kind}: {line(missing, 300)}; nothing can be asked", advice)
    counts = any(weight.component == "judge_scalar" and weight.weight for weight in weights)
    if judge.mode != "pairwise" and not counts:
        return Check(
            "judge",
            "warning",
            f"emission.judge.mode {judge.mode} asks for scores, and no weight of the ranking has the component judge_scalar: "
            "they are paid for and change nothing",
            "add such a weight to emission.ranking.weights, or set emission.judge.mode to pairwise",
        )
    return Check("judge", "ok", f"{judge.kind}, mode {judge.mode}")
