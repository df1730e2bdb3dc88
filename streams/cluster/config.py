"""The configuration: one model, from `braid.toml`, `BRAID_*` variables and flags, in rising order of precedence.

`braid doctor` prints the effective values. Secrets are `SecretStr`: they never reach a log or a listing.
"""

import os
import re
import ssl
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from agents.fork.uid_adapter import FIRST_UID
from agents.models.service import ServiceOptions
from agents.rollouts.policy import ClosingPolicy
from agents.trust.trusted_keys import TrustedVerifiers
from schemas.codec.body import first_problem
from schemas.emission import EmissionConfig
from schemas.errors import BraidError
from streams.cluster.broker import places

CONFIG_FILE = "braid.toml"

Role = Literal["agent", "verifier", "operator", "viewer"]


class ConfigError(BraidError):
    """The configuration does not make sense."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Security(_Section):
    """How to connect to a cluster other than the local one."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Kafka's security.protocol."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "SCRAM-SHA-512"
    """SASL mechanism."""
    username: str = ""
    """SASL user."""
    password: SecretStr = SecretStr("")
    """SASL password."""
    cafile: Path | None = None
    """Certificates to trust; the system's when unset."""
    certfile: Path | None = None
    """Our own certificate, for mutual TLS."""
    keyfile: Path | None = None
    """Its key."""
    registry_username: str = ""
    """User at the schema registry, if it needs one (HTTP basic authentication)."""
    registry_password: SecretStr = SecretStr("")
    """Password there."""

    def ssl_context(self) -> ssl.SSLContext | None:
        """The TLS context; None without TLS."""
        return self.tls() if "SSL" in self.protocol.split("_") else None

    def tls(self) -> ssl.SSLContext:
        """TLS with the certificates given here. Raises ConfigError for files that cannot be loaded."""
        try:
            context = ssl.create_default_context(cafile=str(self.cafile) if self.cafile else None)
            if self.certfile:
                context.load_cert_chain(str(self.certfile), str(self.keyfile) if self.keyfile else None)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"security: cannot load the TLS files: {error}") from error
        return context

    def client_options(self) -> dict[str, Any]:
        """Options of aiokafka's clients."""
        options: dict[str, Any] = {"security_protocol": self.protocol, "ssl_context": self.ssl_context()}
        if self.protocol.startswith("SASL"):
            options |= {
                "sasl_mechanism": self.mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password.get_secret_value(),
            }
        return options


class Token(_Section):
    """A gateway token and its roles."""

    token: SecretStr
    """The bearer token."""
    roles: tuple[Role, ...]
    """agent: events. verifier: verdicts and votes. operator: rollouts, cancelling, everything an agent may. viewer:
    reads the pages; an operator may, too.
    """
    rollout: str | None = None
    """An agent's token may be bound to one rollout ..."""
    branch: int | None = Field(default=None, ge=0)
    """... and to one branch of it."""


class HttpConfig(_Section):
    """A server: its address, and the limits of its connections."""

    host: str = "127.0.0.1"
    """Loopback unless configured; any other address needs tokens."""
    port: int = Field(default=0, ge=0, le=65_535)
    """0 takes a free one."""
    header_s: float = Field(default=10.0, gt=0)
    """The header of a request must be complete after this long."""
    body_grace_s: float = Field(default=10.0, gt=0)
    """How long a body may be slower; also how long the rest of a body is read that was answered before it was complete."""
    answer_s: float = Field(default=30.0, gt=0)
    """A connection is closed if its client has not read from its answer for this long."""
    keep_alive_s: float = Field(default=30.0, gt=0)
    """Connections without a request are kept this long: agents pause between turns."""
    max_connections: int = Field(default=4096, gt=0)
    """At once, for a second up to twice as many; fewer where the system allows fewer open files. The oldest connections without
    a request make room for new ones."""
    max_connections_per_address: int = Field(default=512, gt=0)
    """The share of one address (of IPv6: a network of 64 bits). Raise it behind a proxy: all connections have the
    proxy's address then.
    """


class GatewayConfig(HttpConfig):
    """The HTTP gateway."""

    port: int = Field(default=8790, ge=0, le=65_535)
    """0 takes a free one."""
    tokens: tuple[Token, ...] = ()
    """Without any, every client on loopback is an operator and a verifier. The pages need the same tokens."""
    redact: bool = False
    """Remove secrets before they reach the log; digests are then those of the redacted text."""
    view: bool = False
    """Serve the pages of `braid view` here as well."""
    signing_key: str = ""
    """File with the key that signs verdicts of verifiers that do not sign themselves; empty: a development key, made on first
    use."""
    max_body_bytes: int = Field(default=16 * 1024 * 1024, gt=0)
    """Of one request; a slice in it may have 1 MiB."""
    body_bytes_per_s: int = Field(default=1024, ge=0)
    """A body must arrive at least this fast, measured over every `body_grace_s`."""


class ViewConfig(HttpConfig):
    """The pages: `braid view`. Tokens and roles are those of the gateway."""

    port: int = Field(default=8792, ge=0, le=65_535)
    """0 takes a free one."""
    refresh_s: float = Field(default=0.4, ge=0.05, le=60)
    """How often the log is polled, whether or not pages are open."""
    max_live: int = Field(default=256, ge=0)
    """Open pages that are updated live; further ones are static."""


class WorkerConfig(_Section):
    """The live worker."""

    slot: int = Field(default=0, ge=0)
    """Static membership: a restarted worker with the same slot is back at once. Every worker has its own."""
    metrics_host: str = "127.0.0.1"
    """Where /metrics, /healthz and /readyz listen."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """0 turns them off."""
    session_timeout_s: float = Field(default=10.0, ge=1.0)
    """After this long without a heartbeat the group continues without the worker."""
    checkpoint_s: float = Field(default=1.0, gt=0)
    """How often offsets are committed."""
    keep_marks_ms: int = Field(default=30 * 24 * 3_600_000, ge=0)
    """How long, in the log's time, it is remembered that a rollout has closed."""
    fetch_bytes: int = Field(default=1024 * 1024, gt=0)
    """Bytes fetched at once from a partition; smaller fetches read topics more evenly if there is a backlog."""


class JudgeWorkerConfig(_Section):
    """The judge worker: how it calls the judge of `emission.judge`."""

    slot: int = Field(default=0, ge=0)
    """Static membership: a restarted worker with the same slot is back at once. Every judge worker has its own."""
    rules: Path | None = None
    """The rule file of a scripted judge."""
    base_url: str = ""
    """Of the service; empty: ANTHROPIC_BASE_URL or OPENAI_BASE_URL, else the provider's API."""
    key_variable: str = ""
    """The environment variable that holds the key; empty: ANTHROPIC_API_KEY or OPENAI_API_KEY."""
    extra_body: dict[str, JsonValue] = {}
    """Fields added to every request, as JSON: extensions that a server needs."""
    concurrency: int = Field(default=8, ge=1, le=1000)
    """Concurrent calls."""
    calls_per_hour: int = Field(default=3600, ge=0)
    """Calls beyond it become votes with cause budget. Every process counts its own calls, repetitions included; a worker
    begins with the votes of the last hour that stand in the log."""
    timeout_s: float = Field(default=60.0, gt=0)
    """Of one call."""
    longest_wait_s: float = Field(default=60.0, ge=0)
    """Longest wait before a call is repeated, even if the service asks for more."""
    grace_s: float = Field(default=20.0, ge=0)
    """How long running calls may still take when the worker is stopped."""
    max_tokens: int = Field(default=1024, ge=64)
    """Of an answer."""
    metrics_host: str = "127.0.0.1"
    """Where /metrics, /healthz and /readyz listen."""
    metrics_port: int = Field(default=0, ge=0, le=65_535)
    """0 turns them off."""
    usd_per_mtok_in: float | None = Field(default=None, ge=0)
    """Price of a million prompt tokens; with both prices, votes record their cost."""
    usd_per_mtok_out: float | None = Field(default=None, ge=0)
    """Price of a million generated tokens."""

    def service(self) -> ServiceOptions:
        """The service behind the judge's model."""
        setting = "judge.base_url (BRAID_JUDGE__BASE_URL)"
        return ServiceOptions(self.base_url, setting, self.key_variable, self.extra_body)


class ForkConfig(_Section):
    """The fork runner: `braid fork`."""

    model: str = ""
    """The agent's model, for --model anthropic and openai; --model-name overrides it."""
    base_url: str = ""
    """Of the service; empty: ANTHROPIC_BASE_URL or OPENAI_BASE_URL, else the provider's API. --base-url overrides it."""
    key_variable: str = ""
    """The environment variable that holds the key; empty: ANTHROPIC_API_KEY or OPENAI_API_KEY."""
    extra_body: dict[str, JsonValue] = {}
    """Fields added to every request, as JSON: {"thinking": ...}, {"chat_template_kwargs": ...}."""
    send_reasoning: bool = True
    """Send the reasoning of earlier turns back over chat completions. The Messages API always gets its thinking back."""
    timeout_s: float = Field(default=300.0, gt=0)
    """Of one turn."""
    max_tokens: int = Field(default=8192, ge=256)
    """Of one turn."""
    isolation: Literal["namespaces", "processes"] = "namespaces"
    """Of local sandboxes. With `processes`, agents have this user's network and files: only for machines that are thrown away."""
    workspace_mb: int = Field(default=1024, ge=16, le=2**20)
    """Size of a local sandbox's workspace, which is in memory; a command that needs more fails as on a full disk."""
    first_uid: int = Field(default=FIRST_UID, ge=1000, lt=2**32 - 2**16)
    """Started by root, each local sandbox runs as two users of the machine from this number on; 8192 of them must be unused."""
    sandboxes: Path | None = None
    """Folder of local sandboxes; unset: below the state directory."""
    snapshots: Path | None = None
    """Folder of workspace snapshots; unset: below the state directory."""
    e2b_template: str = ""
    """Empty: E2B's base template. The key is E2B_API_KEY."""

    def service(self) -> ServiceOptions:
        """The service behind the agent's model."""
        setting = "fork.base_url (BRAID_FORK__BASE_URL)"
        return ServiceOptions(self.base_url, setting, self.key_variable, self.extra_body, self.send_reasoning)


class VerifierConfig(_Section):
    """The verifiers: `braid build-verifier` and `braid visual-verifier`. The verifier's settings; sandboxes and
    snapshots are those of `fork`.
    """

    slot: int = Field(default=0, ge=0)
    """Static membership: a restarted verifier with the same slot is back at once. Each verifier of a kind has its own.
    """
    concurrency: int = Field(default=2, ge=1, le=256)
    """Branches that are examined at once, each in a sandbox of its own; never more."""
    tasks: tuple[Path, ...] = ()
    """Folders of task directories, in addition to the samples. The pristine tests come from here, never from a branch.
    """
    sandbox: Literal["local", "e2b"] = "local"
    """The sandbox of the build verifier. A browser needs a local one."""
    browser: Path | None = None
    """Chromium itself; unset: the system's."""
    announce_s: float = Field(default=30.0, ge=0)
    """A build that takes longer is announced as running."""
    grace_s: float = Field(default=20.0, ge=0)
    """How long running work may still take when a verifier is stopped."""
    anti_manipulation: bool = True
    """Rollouts of `braid fork` wait for the verdict `hacks` of `braid hack-verifier`, which decides no outcome; and
    `braid fork --verify` gives it."""
    judged_hacks: bool = False
    """Whether the judge of `emission.judge` is also asked if work games its tests. Its votes are signals of their own
    class.
    """
    signing_key: str = ""
    """File with the key that signs verdicts; empty: a development key, made on first use. A different key from the
    evidence key.
    """


class MemoryConfig(_Section):
    """Memory of what worked: `braid memory`, and `braid fork --memories`."""

    path: Path | None = None
    """The embedded store; unset: below the state directory."""
    top_k: int = Field(default=3, ge=0, le=50)
    """Most memories for a task."""
    floor: float = Field(default=0.2, ge=0.0, le=1.0)
    """Memories with a lower score are not returned."""
    embedding: str = ""
    """`module:function` from texts to vectors; empty: BM25 in the embedded store, hashed words in a Qdrant."""
    qdrant: str = ""
    """URL of a Qdrant to use instead of the embedded store."""
    qdrant_key: SecretStr = SecretStr("")
    """Its key."""
    collection: str = "braid-memories"
    """In the Qdrant."""


class CaptureConfig(_Section):
    """The fold of captures: part of `braid worker`."""

    idle_s: float = Field(default=600.0, gt=0)
    """A captured branch without an end is over when no capture has arrived for this long."""
    trace_idle_s: float = Field(default=60.0, gt=0)
    """A trace with spans that are missing or open, and a branch that traces name, are over when no span came for this long."""
    max_age_s: float = Field(default=24 * 3600.0, gt=0)
    """It is over at the latest this long after its first capture."""
    max_branch_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    """It is over beyond this many bytes of captures."""


class Upstream(_Section):
    """A model API behind the proxy."""

    url: str = Field(pattern=r"^https?://[^/@\s?#]+(/[^@\s?#]*)?$")
    """Base URL without `/v1`; a path below the upstream's prefix is appended to it."""
    key_variable: str = ""
    """The environment variable that holds its API key, for agents whose key is a token of ours."""
    key_header: Literal["authorization", "x-api-key"] = "authorization"
    """The header that carries the key."""


OTHER_PATHS = ("r", "v1", "docs", "healthz", "readyz", "metrics", "openapi", "rollouts", "static", "view")
"""First parts of paths that do not belong to an upstream."""


class ProxyConfig(_Section):
    """The capturing proxy: `braid proxy`, or `braid gateway` where upstreams are configured."""

    host: str = "127.0.0.1"
    """Loopback unless configured; any other address needs tokens (`gateway.tokens`)."""
    port: int = Field(default=8791, ge=0, le=65_535)
    """0 takes a free one."""
    upstreams: dict[str, Upstream] = {}
    """Model APIs by the prefix of their paths. `braid proxy` has openai and anthropic if none are configured."""
    adopt: bool = False
    """Capture calls without an identity, too: grouped by their opening messages into rollouts `cap-<digest>`."""
    token_ids: bool = False
    """Ask servers of chat completions (vLLM, SGLang) for token ids and log-probabilities, for the training rows, and
    remove them from the answer again. Other servers refuse the fields.
    """
    spool: Path | None = None
    """Folder of captures that are not on the log yet; unset: below the state directory."""
    spool_bytes: int = Field(default=256 * 1024 * 1024, ge=0)
    """Bytes of all waiting captures. Beyond it calls still pass, are not captured, and are counted."""
    max_body_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    """Of a request (413 beyond), and of the copy of a response that is kept for its capture."""
    connect_s: float = Field(default=15.0, gt=0)
    """Time to reach an upstream."""
    silence_s: float = Field(default=600.0, gt=0)
    """A call is given up if its upstream has sent nothing for this long."""
    max_calls: int = Field(default=1024, gt=0)
    """Concurrent calls; more get 503."""

    @field_validator("upstreams")
    @classmethod
    def _have_paths_of_their_own(cls, upstreams: dict[str, Upstream]) -> dict[str, Upstream]:
        for name in upstreams:
            if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,63}", name) or name in OTHER_PATHS:
                raise ValueError(
                    f"{name}: the name of an upstream is a part of its path, in small letters, and not {', '.join(OTHER_PATHS)}"
                )
        return upstreams


class Settings(BaseSettings):
    """Everything that can be configured."""

    model_config = SettingsConfigDict(
        env_prefix="BRAID_", env_nested_delimiter="__", frozen=True, extra="forbid", use_attribute_docstrings=True
    )

    kafka: str = ""
    """Bootstrap servers; empty: the local broker that `braid broker start` runs."""
    registry: str = ""
    """Base URL of a schema registry's Confluent API; empty: the local one, or none with a foreign cluster. Without a user and a
    password in it: these are settings of their own, and never printed."""
    prefix: str = Field(default="", pattern=r"^[A-Za-z0-9._-]{0,80}$")
    """Put before every topic and group name: a tenant, a test."""
    partitions: int = Field(default=8, ge=1, le=10_000)
    """Of every topic. Cannot be changed once there is data."""
    replication: int = Field(default=1, ge=1)
    """Of every topic."""
    security: Security = Security()
    emission: EmissionConfig = EmissionConfig()
    closing: ClosingPolicy = ClosingPolicy()
    gateway: GatewayConfig = GatewayConfig()
    proxy: ProxyConfig = ProxyConfig()
    capture: CaptureConfig = CaptureConfig()
    view: ViewConfig = ViewConfig()
    worker: WorkerConfig = WorkerConfig()
    judge: JudgeWorkerConfig = JudgeWorkerConfig()
    fork: ForkConfig = ForkConfig()
    verifier: VerifierConfig = VerifierConfig()
    memory: MemoryConfig = MemoryConfig()
    signing_key: str = ""
    """File with the evidence key; empty: a development key, made on first use."""
    trusted_verifiers: TrustedVerifiers | None = None
    """The keys whose verdicts count, by key id: a public key in hex, or a table with `public_key` and the `kinds` that it may speak for.
    `local`: the verifier's and the gateway's key of this machine. Unset: all verdicts count, signed or not."""
    state_dir: Path | None = None
    """Folder of the local broker and the embedded log; unset: the user's state directory."""
    cache_dir: Path | None = None
    """Folder of downloaded files; unset: the user's cache directory."""

    @field_validator("registry")
    @classmethod
    def _holds_no_password(cls, url: str) -> str:
        if url and not re.fullmatch(r"https?://[^/@\s]+(/[^@\s]*)?", url):
            raise ValueError(
                "an http(s) address is expected, without a user and a password in it: "
                "these are security.registry_username and security.registry_password"
            )
        return url

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource, file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
    ) -> tuple[PydanticBaseSettingsSource, ...]:  # fmt: skip
        """Flags over variables over the file."""
        return init_settings, env_settings, TomlConfigSettingsSource(settings_cls, config_file())

    @property
    def group(self) -> str:
        """The worker's consumer group and Faust id; its tables are named after it."""
        return f"{self.prefix}braid-worker"

    @property
    def judge_group(self) -> str:
        """The consumer group of the judge workers."""
        return f"{self.prefix}braid-judge"

    @property
    def capture_group(self) -> str:
        """The consumer group of the capture fold."""
        return f"{self.prefix}braid-captures"

    def verifier_group(self, kind: str) -> str:
        """The consumer group of the verifiers of a kind."""
        return f"{self.prefix}braid-{kind}-verifier"


def config_file() -> Path:
    """The configuration file: `BRAID_CONFIG`, else `braid.toml` in the working directory."""
    return Path(os.environ.get("BRAID_CONFIG") or CONFIG_FILE)


def load(**flags: Any) -> Settings:
    """The effective configuration. Raises ConfigError with the field and the reason."""
    named = os.environ.get("BRAID_CONFIG")
    if named and not Path(named).is_file():
        raise ConfigError(f"BRAID_CONFIG names {named}, which is not a file")
    try:
        return Settings(**{key: value for key, value in flags.items() if value is not None})
    except ValidationError as error:
        raise ConfigError(
            f"configuration: {first_problem(error)}; `braid doctor` shows where values come from"
        ) from None
    except ValueError as error:
        raise ConfigError(f"configuration: {config_file()}: {error}") from None


def state_dir() -> Path:
    """The folder of the local broker: configured, else the user's state directory."""
    return load().state_dir or places.state_dir()


def cache_dir() -> Path:
    """The folder of downloaded files: configured, else the user's cache directory."""
    return load().cache_dir or places.cache_dir()
