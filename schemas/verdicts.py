"""Verdicts of verifiers about a branch. Agents have no way to write these: they have topics of their own.

The *meaning* of a verdict (pass, fail, unknown) is decided in `agents/verdicts`; a record has only observations.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Count, Id, Index, Json, Record, Share, Whole

BuildStatus = Literal["success", "failure", "running", "unknown", "infra_error"]
Stage = Literal["install", "build", "test", "dev"]
VisualStatus = Literal["pass", "fail", "pending", "unknown"]
CheckStatus = Literal["pass", "fail", "unknown"]
Isolation = Literal["strong", "weak"]


class TestCounts(Record):
    """The counts of a test run."""

    __test__ = False  # a record, not a test class: keeps pytest from collecting it

    passed: Count
    """Tests that passed."""
    failed: Count
    """Tests that failed or had errors."""
    skipped: Count = 0
    """Tests that were skipped."""
    total: Count
    """Tests that were collected."""
    collection_errors: Count | None = None
    """Test files or suites that could not be collected (a syntax error, a missing import); null where the verifier does not say."""


class OutputTail(Record):
    """The end of a stream, with the digest of all of it."""

    text: str
    """The last part."""
    digest: str
    """SHA-256 of the whole, in hex."""


class VerdictSignature(Record):
    """The signature of a verdict: Ed25519 over all of it but this (`agents/trust`)."""

    key_id: Id
    """The name of the key, as `trusted_verifiers` has it."""
    sig: str
    """The signature, as base64."""


class BuildVerdict(Record):
    """A build or test run of one branch."""

    rollout_id: Id
    """The rollout; also the Kafka key."""
    branch_index: Index
    """The branch."""
    attempt: Index = 0
    """The attempt that was built."""
    verdict_id: Id
    """A function of the content, or the verifier's own id."""
    status: BuildStatus
    """The build's own report."""
    exit_code: Whole | None = None
    """The process's exit code, where there was one."""
    stage: Stage | None = None
    """How far it came."""
    tests: TestCounts | None = None
    """Test counts, where tests ran."""
    coverage: Share | None = None
    """Line coverage, 0..1."""
    protected_paths_intact: bool | None = None
    """False when a protected file (a test, a configuration) was changed: a confirmed hack."""
    baseline_tests: Count | None = None
    """Tests that the untouched task collects; fewer, with nothing that could not be collected, is a confirmed hack."""
    stdout: OutputTail | None = None
    """End of the standard output."""
    stderr: OutputTail | None = None
    """End of the standard error."""
    wall_ms: Count | None = None
    """How long it took."""
    produced_by: str = "unknown"
    """Which verifier said so; `import` for verdicts that came with a file."""
    isolation: Isolation | None = None
    """Whether the code under test could reach its tests: strong if it could not, weak if it could; null where the verifier does not say."""
    signature: VerdictSignature | None = Field(default=None, exclude_if=lambda signature: signature is None)
    """The signature of its verifier; null without one."""


class DomProbe(Record):
    """One question asked of the page."""

    name: str
    """The probe's name in the task."""
    ok: bool
    """Whether it held."""
    detail: str | None = None
    """The observations."""


class VisualVerdict(Record):
    """A look at the built page of one branch."""

    rollout_id: Id
    """The rollout; also the Kafka key."""
    branch_index: Index
    """The branch."""
    attempt: Index = 0
    """The attempt that was looked at."""
    verdict_id: Id
    """A function of the content, or the verifier's own id."""
    verdict: VisualStatus | None = None
    """The verifier's own conclusion; null when it only reports observations."""
    reason: str | None = None
    """Why."""
    uncaught_errors: tuple[str, ...] = ()
    """Errors that the page did not catch."""
    console_errors: tuple[str, ...] = ()
    """Errors that the page wrote to its console."""
    dom_probes: tuple[DomProbe, ...] = ()
    """Questions asked of the page."""
    renders_non_empty: bool | None = None
    """Whether anything was drawn."""
    screenshot_digest: str | None = None
    """SHA-256 of the screenshot, in hex."""
    produced_by: str = "unknown"
    """Which verifier said so."""
    signature: VerdictSignature | None = Field(default=None, exclude_if=lambda signature: signature is None)
    """The signature of its verifier; null without one."""


class CheckVerdict(Record):
    """Any other named check of one branch: lint, a criterion, something of one's own."""

    rollout_id: Id
    """The rollout; also the Kafka key."""
    branch_index: Index
    """The branch."""
    attempt: Index = 0
    """The attempt that was checked."""
    verdict_id: Id
    """A function of the content, or the verifier's own id."""
    name: Id
    """The check's name, as RolloutOpened.required names it."""
    status: CheckStatus
    """The outcome."""
    score: Share | None = None
    """A degree, where the check has one."""
    hint: str | None = None
    """The change that would make it pass."""
    details: Json | None = Field(default=None, exclude_if=lambda details: details is None)
    """More of it, as JSON text whose shape the name decides: `hacks`, `compliance`."""
    produced_by: str = "unknown"
    """Which verifier said so."""
    signature: VerdictSignature | None = Field(default=None, exclude_if=lambda signature: signature is None)
    """The signature of its verifier; null without one."""
