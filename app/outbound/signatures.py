"""Signatures of what is sent out, by Standard Webhooks 1.0 (https://www.standardwebhooks.com): symmetric, `v1`.

The receiver computes HMAC-SHA256 over `<id>.<timestamp>.<body>` and compares. While a secret is rotated, several
signatures go side by side, one for each secret.
"""

import base64
import binascii
import hmac
from collections.abc import Mapping, Sequence
from hashlib import sha256

PREFIX = "whsec_"
ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
TOLERANCE_SECONDS = 300
MINIMUM_KEY_BYTES = 16
MAXIMUM_KEY_BYTES = 128


class InvalidSecret(ValueError):
    """A signing secret cannot be used; the message never has it."""


class InvalidSignature(Exception):
    """A message was not signed by any of the secrets, or not lately."""


def secret_of(key: bytes) -> str:
    """Spell the random bytes of a new secret (24 to 64 are advised) as `whsec_…`."""
    _check_length(key)
    return PREFIX + base64.b64encode(key).decode()


def key_of(secret: str) -> bytes:
    """Read a secret, `whsec_` and base64. Raises InvalidSecret."""
    text = secret.strip()
    if not text.startswith(PREFIX):
        raise InvalidSecret("a signing secret should be whsec_ followed by base64")
    text = text.removeprefix(PREFIX).rstrip("=")
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise InvalidSecret("a signing secret should be whsec_ followed by base64") from None
    _check_length(key)
    return key


def sign(secrets: Sequence[str], message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Make the three headers of one message; `timestamp` is in Unix seconds. Raises InvalidSecret.

    `message_id` stays the same over attempts, so that the receiver can tell a repetition.
    """
    if not secrets:
        raise InvalidSecret("a message should be signed with at least one secret")
    if "." in message_id or not message_id.isascii() or not message_id.isprintable() or not message_id:
        raise ValueError("a message id should be printable ASCII without dots")
    keys = [key_of(secret) for secret in secrets]
    signatures = [_signature(key, message_id, str(timestamp), body) for key in keys]
    return {
        ID_HEADER: message_id,
        TIMESTAMP_HEADER: str(timestamp),
        SIGNATURE_HEADER: " ".join(dict.fromkeys(signatures)),
    }


def verify(
    secrets: Sequence[str],
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float,
    tolerance_seconds: float = TOLERANCE_SECONDS,
) -> None:
    """Check a message's headers at `now` (Unix seconds). Raises InvalidSignature, or InvalidSecret."""
    found = {name.lower(): value for name, value in headers.items()}
    message_id, timestamp = found.get(ID_HEADER, ""), found.get(TIMESTAMP_HEADER, "")
    if not message_id or not timestamp.isascii() or not timestamp.isdigit() or len(timestamp) > 12:
        raise InvalidSignature("the message lacks an id or a timestamp")
    if abs(now - int(timestamp)) > tolerance_seconds:
        raise InvalidSignature("the message's timestamp is too far from the present")
    given = [one.encode("utf-8", "replace") for one in found.get(SIGNATURE_HEADER, "").split(" ")]
    expected = [_signature(key_of(secret), message_id, timestamp, body).encode() for secret in secrets]
    if not any(hmac.compare_digest(one, other) for one in expected for other in given):
        raise InvalidSignature("no signature of the message is right")


def _signature(key: bytes, message_id: str, timestamp: str, body: bytes) -> str:
    signed = b".".join((message_id.encode(), timestamp.encode(), body))
    return "v1," + base64.b64encode(hmac.digest(key, signed, sha256)).decode()


def _check_length(key: bytes) -> None:
    if not MINIMUM_KEY_BYTES <= len(key) <= MAXIMUM_KEY_BYTES:
        raise InvalidSecret(f"a signing secret should have {MINIMUM_KEY_BYTES} to {MAXIMUM_KEY_BYTES} bytes")
