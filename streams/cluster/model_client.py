"""The model that the configuration names, behind the one port."""

from typing import TYPE_CHECKING

from agents.models.service import ServiceKind, ServiceOptions

if TYPE_CHECKING:
    from agents.models.model import Model


def open_model(kind: ServiceKind, name: str, service: ServiceOptions) -> "Model":
    """Make the client; nothing is asked yet. Raises ModelSetupError."""
    if kind == "openai":
        from agents.models.openai_adapter import OpenAIModel

        return OpenAIModel(name, service)
    from agents.models.anthropic_adapter import AnthropicModel

    return AnthropicModel(name, service)
