"""The two dialects that providers speak, behind one protocol (`base.py`)."""

from app.llm_settings import ProviderSettings
from workers.llm.providers.anthropic import Anthropic
from workers.llm.providers.base import Provider
from workers.llm.providers.openai_compatible import OpenAiCompatible


def provider_of(name: str, settings: ProviderSettings) -> Provider:
    """Make the dialect of a provider."""
    match settings.kind:
        case "anthropic":
            return Anthropic(name, settings)
        case "openai":
            return OpenAiCompatible(name, settings)
