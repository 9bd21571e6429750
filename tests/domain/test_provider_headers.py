from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.provider_headers import asked_to_wait_seconds

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
ZERO = {"x-ratelimit-remaining-tokens": "0"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "7.5"}, 7.5),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "7s"}, 7.0),
        ({"retry-after": "1m30s"}, 90.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:07 GMT"}, 7.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "999999999999"}, 86400.0),
        ({"retry-after": "1" * 500}, None),
        ({"retry-after": "NaN"}, None),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "1"}, 1.0),
        ({"retry-after-ms": "x", "retry-after": "3"}, 3.0),
        (ZERO | {"x-ratelimit-reset-tokens": "6m0s"}, 360.0),
        (ZERO | {"x-ratelimit-reset-tokens": "20ms"}, 0.02),
        (ZERO | {"x-ratelimit-reset-tokens": "12"}, 12.0),
        (ZERO | {"x-ratelimit-reset-tokens": str(int(NOW.timestamp()) + 9)}, 9.0),
        (ZERO | {"x-ratelimit-reset-tokens": str(int(NOW.timestamp() + 9) * 1000)}, 9.0),
        ({"x-ratelimit-remaining-tokens": "5", "x-ratelimit-reset-tokens": "6m0s"}, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "0",
                "anthropic-ratelimit-requests-reset": "2026-11-30T12:00:30Z",
                "anthropic-ratelimit-tokens-remaining": "100",
                "anthropic-ratelimit-tokens-reset": "2026-11-30T13:00:00Z",
            },
            30.0,
        ),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "2026-11-30"}, None),
    ],
)
def test_what_the_headers_ask_for(headers: dict[str, str], seconds: float | None) -> None:
    assert asked_to_wait_seconds(headers, NOW) == seconds


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "retry-after",
                "retry-after-ms",
                "x-ratelimit-remaining-tokens",
                "x-ratelimit-reset-tokens",
                "x-ratelimit-reset",
            ]
        ),
        st.text(alphabet="0123456789.smhdµ -:TZ+,", max_size=40),
    )
)
def test_whatever_they_hold_nothing_raises(headers: dict[str, str]) -> None:
    found = asked_to_wait_seconds(headers, NOW)

    assert found is None or 0 <= found <= 86400
