from datetime import UTC, datetime
from decimal import Decimal

import pytest

from app.domain.llm import Tokens
from app.llm_settings import ModelPrice, ProviderSettings
from tests.support.llm_provider import PRICE
from workers.llm.pricing import price_of

NOW = datetime(2026, 11, 30, tzinfo=UTC)
TOKENS = Tokens(1000, 100, cached=200, cache_write=50)


def a_provider(url: str = "http://127.0.0.1:8080/v1", **more: object) -> ProviderSettings:
    return ProviderSettings(kind="openai", base_url=url, model="m", **more)  # type: ignore[arg-type]


def test_the_own_table_is_exact_and_first() -> None:
    provider = a_provider("https://api.openai.com/v1", prices={"gpt-4o-mini": ModelPrice.model_validate(PRICE)})

    price = price_of(provider, ("gpt-4o-mini",), TOKENS, NOW)

    assert price.cost_usd == (800 * Decimal(3) + 200 * Decimal("0.3") + 100 * Decimal(15)) / 1_000_000
    assert (price.source, price.as_of) == ("settings", "2026-11-01")


@pytest.mark.parametrize(
    "provider",
    [a_provider("https://api.openai.com/v1"), a_provider("http://proxy.internal/v1", price_provider="openai")],
)
def test_the_price_list_knows_a_vendor_by_its_address_or_by_name(provider: ProviderSettings) -> None:
    price = price_of(provider, ("gpt-4o-mini-2024-07-18", "gpt-4o-mini"), Tokens(1000, 100), NOW)

    assert price.cost_usd == Decimal("0.00021")
    assert price.source is not None and price.source.startswith("genai-prices")
    assert price.as_of is not None and price.as_of.startswith("202")


@pytest.mark.parametrize("provider", [a_provider(), a_provider("https://api.openai.com/v1")])
def test_what_has_no_price_has_no_cost(provider: ProviderSettings) -> None:
    model = "gpt-4o-mini" if "127.0.0.1" in provider.base_url else "no-such-model"

    assert price_of(provider, (None, model), TOKENS, NOW).cost_usd is None
