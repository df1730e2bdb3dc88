"""The address of a model's service and the options of its calls; checks that need no connection."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from agents.models.model_error import ModelSetupError

ServiceKind = Literal["anthropic", "openai"]
"""The protocol: the Messages API, or chat completions."""


class ServiceOptions(NamedTuple):
    """The service behind a model."""

    base_url: str = ""
    """Empty: the SDK's own variable, else the provider's API."""
    url_setting: str = "base_url"
    """The setting that `base_url` is from, for error texts."""
    key_variable: str = ""
    """The environment variable with the key; empty: the provider's own."""
    extra_body: Mapping[str, Any] = {}
    """Fields added to every request: `thinking`, `chat_template_kwargs`, ..."""
    send_reasoning: bool = True
    """Chat completions: send the reasoning of earlier turns back, under the name by which the server wrote it."""


class Provider(NamedTuple):
    """The variables of a provider's SDK."""

    keys: tuple[str, ...]
    base_url: str
    servers_need_key: bool
    """Whether a server with a configured address needs a key, too."""


PROVIDERS: Mapping[ServiceKind, Provider] = {
    "anthropic": Provider(("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"), "ANTHROPIC_BASE_URL", servers_need_key=True),
    "openai": Provider(("OPENAI_API_KEY",), "OPENAI_BASE_URL", servers_need_key=False),
}


def check_service(kind: ServiceKind, model: str, service: ServiceOptions, environment: Mapping[str, str]) -> None:
    """Raise ModelSetupError if the key is missing or the address is invalid."""
    provider = PROVIDERS[kind]
    url = service.base_url or environment.get(provider.base_url, "")
    check_url(url, service.url_setting if service.base_url else provider.base_url)
    names = (service.key_variable,) if service.key_variable else provider.keys
    needed = service.key_variable or provider.servers_need_key or not url
    if needed and not any(environment.get(name) for name in names):
        raise ModelSetupError(f"no key for the model {model}: set {names[0]}{_otherwise(provider, service)}")


def _otherwise(provider: Provider, service: ServiceOptions) -> str:
    if service.key_variable or provider.servers_need_key:
        return ""
    return f", or name a server of your own in {service.url_setting}"


def check_url(url: str, setting: str) -> None:
    """Raise ModelSetupError for an address that no call can reach. A password in it is not shown."""
    try:
        parts = urlsplit(url)
        usable = not url or (parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0)
    except ValueError:  # the port is not a number, or brackets do not close
        usable = False
    if not usable:
        raise ModelSetupError(
            f"{setting} is no URL of a service: {url.rpartition('@')[2]!r}; give http://... or https://..."
        )
