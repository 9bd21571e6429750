"""What a submitter may choose of the models: checked at submission where it can be known, and again before the call."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo
from pydantic_core import PydanticCustomError

from app.domain.llm import Answer, LlmFailure
from app.llm_settings import LlmSettings
from despacho import DeadLetter, TaskContext


def known_settings(info: ValidationInfo) -> LlmSettings | None:
    """Give the settings that a submission knows; None inside of a worker, which checks for itself."""
    found = info.context.get("llm") if isinstance(info.context, dict) else None
    return found if isinstance(found, LlmSettings) else None


def _refusing(ask: Callable[[LlmSettings, ValidationInfo, Any], str | None]) -> Callable[[Any, ValidationInfo], Any]:
    def check(value: Any, info: ValidationInfo) -> Any:
        settings = known_settings(info)
        if settings is not None and (said := ask(settings, info, value)) is not None:
            raise PydanticCustomError("llm_not_allowed", "{said}", {"said": said})
        return value

    return check


ProviderName = Annotated[
    Annotated[str, StringConstraints(min_length=1, max_length=64)] | None,
    AfterValidator(_refusing(lambda settings, _, value: settings.refuses_provider(value))),
    Field(validate_default=True, description="the provider; default: the operator's"),
]
ModelName = Annotated[
    Annotated[str, StringConstraints(min_length=1, max_length=200)] | None,
    AfterValidator(_refusing(lambda settings, info, value: settings.refuses_model(info.data.get("provider"), value))),
    Field(description="the model; default: the provider's"),
]


def check_choices(ctx: TaskContext, provider: str | None, model: str | None, prompt: str | None = None) -> LlmSettings:
    """Check choices by the worker's own settings, and give those.

    Raises LlmFailure (`llm_not_configured`), or DeadLetter (`llm_not_allowed`) that says what is open.
    """
    settings = ctx.llm.settings
    if settings is None or not settings.providers:
        raise LlmFailure("llm_not_configured", "no provider is configured: set DESPACHO_LLM__PROVIDERS")
    refused = settings.refuses_provider(provider) or settings.refuses_model(provider, model)
    if refused is None and prompt is not None:
        refused = settings.refuses_prompt(prompt)
    if refused is not None:
        raise DeadLetter("llm_not_allowed", f"what the task asks of the models {refused}")
    return settings


def sum_tokens(answers: list[Answer]) -> tuple[int, int]:
    """Sum the tokens in and out of answers."""
    return sum(one.tokens.input for one in answers), sum(one.tokens.output for one in answers)
