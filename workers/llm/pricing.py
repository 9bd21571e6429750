"""What a call costs: the provider's own price table of the settings first, then the price list of `genai-prices`.

The list is asked only for a provider that is known to it by its address or by `price_provider`: a model of the same
name on somebody's own machine must not be billed at a vendor's price. What has no price has no cost, which is not 0.
"""

import asyncio
import re
import sys
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.metadata import version

from app.domain.llm import Price, Tokens
from app.llm_settings import ModelPrice, ProviderSettings

_MILLION = Decimal(1_000_000)
_DATE = re.compile(r"\b(20[0-9]{2}-[01][0-9]-[0-3][0-9])\b")
UNKNOWN = Price(None)


def price_of(settings: ProviderSettings, models: tuple[str | None, ...], tokens: Tokens, now: datetime) -> Price:
    """Price a call by the first of `models` (answered, asked) that has a price; exact, in USD."""
    for model in models:
        if model is not None and (own := settings.prices.get(model)) is not None:
            return Price(_own(own, tokens), "settings", own.as_of.isoformat())
    for model in models:
        if model is not None and (listed := _listed(settings, model, tokens, now)) is not None:
            return listed
    return UNKNOWN


async def warm(settings: ProviderSettings, model: str) -> None:
    """Read the price list before it is first needed, away from the loop: it takes a fifth of a second."""
    if model not in settings.prices and "genai_prices" not in sys.modules:
        await asyncio.to_thread(read_list)


def read_list() -> None:
    """Read the price list now."""
    _list_date()


def _own(price: ModelPrice, tokens: Tokens) -> Decimal:
    read = price.input_usd_per_million_tokens
    cached = read if price.cached_usd_per_million_tokens is None else price.cached_usd_per_million_tokens
    write = read if price.cache_write_usd_per_million_tokens is None else price.cache_write_usd_per_million_tokens
    plain = max(0, tokens.input - tokens.cached - tokens.cache_write)
    total = plain * read + tokens.cached * cached + tokens.cache_write * write
    return (total + tokens.output * price.output_usd_per_million_tokens) / _MILLION


def _listed(settings: ProviderSettings, model: str, tokens: Tokens, now: datetime) -> Price | None:
    # Imported when first needed: a process without a model should not pay for it.
    from genai_prices import Usage, calc_price

    usage = Usage(
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        cache_read_tokens=tokens.cached,
        cache_write_tokens=tokens.cache_write,
    )
    try:
        if settings.price_provider is not None:
            found = calc_price(usage, model, provider_id=settings.price_provider, genai_request_timestamp=now)
        else:
            found = calc_price(usage, model, provider_api_url=settings.base_url, genai_request_timestamp=now)
    except (LookupError, ValueError):
        return None
    return Price(found.total_price, f"genai-prices {_list_version()}", _date_of(found.model, now))


@cache
def _list_version() -> str:
    return version("genai-prices")


def _date_of(model: object, now: datetime) -> str | None:
    """Find the date of a model's price: the latest that its comments name as verified, or since when it holds."""
    dates = set(_DATE.findall(str(getattr(model, "price_comments", None) or "")))
    prices = getattr(model, "prices", None)
    for one in prices if isinstance(prices, list) else []:
        start = getattr(getattr(one, "constraint", None), "start_date", None)
        if start is not None:
            dates.add(start.isoformat())
    today = now.astimezone(UTC).date().isoformat()
    known = [one for one in dates if one <= today]
    return max(known, default=None) or _list_date()


@cache
def _list_date() -> str | None:
    """Tell when the price list was packed: the latest date that it names anywhere is not later than that."""
    from genai_prices import data_snapshot

    today = datetime.now(UTC).date().isoformat()
    found = [
        date
        for provider in data_snapshot.get_snapshot().providers
        for model in provider.models
        for date in _DATE.findall(str(model.price_comments or ""))
        if date <= today
    ]
    return max(found, default=None)
