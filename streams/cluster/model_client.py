"""The model that the configuration names, behind the one port."""

from typing import TYPE_CHECKING

from agents.models.service import ServiceKind, ServiceOptions
from schemas.extras import needs

if TYPE_CHECKING:
    from agents.models.model import Model


def open_model(kind: ServiceKind, name: str, service: ServiceOptions) -> "Model":
    """Make the client; no request is sent yet. Raises ModelSetupError, or MissingExtraError without the SDK."""
    if kind == "openai":
        with needs("judge", f"asking {name} by the protocol openai"):
            from agents.models.openai_adapter import OpenAIModel

        return OpenAIModel(name, service)
    with needs("judge", f"asking {name} by the protocol anthropic"):
        from agents.models.anthropic_adapter import AnthropicModel

    return AnthropicModel(name, service)
