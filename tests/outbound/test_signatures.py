"""Signatures by Standard Webhooks, looked at by the independent package of that name."""

import base64
import time
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from app.outbound.signatures import InvalidSecret, InvalidSignature, secret_of, sign, verify

OLD, NEW, OTHER = (secret_of(bytes([number]) * 32) for number in (1, 2, 3))
BODY = '{"größe": 1}'.encode()


def test_the_independent_package_verifies_what_is_signed() -> None:
    headers = sign([OLD], "task_1", int(time.time()), BODY)

    assert Webhook(OLD).verify(BODY, headers) == {"größe": 1}
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(BODY, headers)


def test_what_the_independent_package_signs_is_verified() -> None:
    now = int(time.time())
    signature = Webhook(OLD).sign("msg_1", datetime.fromtimestamp(now, UTC), BODY.decode())
    headers = {"Webhook-Id": "msg_1", "Webhook-Timestamp": str(now), "Webhook-Signature": f"v2,x {signature}"}

    verify([OTHER, OLD], headers, BODY, now=now)


def test_both_secrets_of_a_rotation_verify() -> None:
    headers = sign([NEW, OLD], "task_1", int(time.time()), BODY)

    for secret in (OLD, NEW):
        assert Webhook(secret).verify(BODY, headers)


@pytest.mark.parametrize(
    "change",
    [
        {"webhook-id": "task_2"},
        {"webhook-id": ""},
        {"webhook-timestamp": "1001"},
        {"webhook-timestamp": "x"},
        {"webhook-timestamp": "-5"},
        {"webhook-timestamp": "9" * 30},
        {"webhook-signature": ""},
        {"webhook-signature": "v1,"},
        {"webhook-signature": "v1,ä"},
        {"webhook-signature": "nonsense"},
    ],
)
def test_a_changed_message_does_not_verify(change: dict[str, str]) -> None:
    headers = sign([OLD], "task_1", 1000, BODY) | change

    with pytest.raises(InvalidSignature):
        verify([OLD], headers, BODY, now=1000)


def test_a_changed_body_or_an_old_message_does_not_verify() -> None:
    headers = sign([OLD], "task_1", 1000, BODY)

    with pytest.raises(InvalidSignature):
        verify([OLD], headers, BODY + b" ", now=1000)
    with pytest.raises(InvalidSignature, match="too far"):
        verify([OLD], headers, BODY, now=1301)


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "canary", "whsec_canary!", "whsec_" + base64.b64encode(b"x").decode()]
)
def test_a_secret_that_cannot_sign_is_refused_without_its_text(secret: str) -> None:
    with pytest.raises(InvalidSecret) as refused:
        sign([secret], "task_1", 1000, BODY)

    assert "canary" not in str(refused.value)
