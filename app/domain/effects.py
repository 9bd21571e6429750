"""What follows for an effect on the outside world: call, skip, wait, ask, or report a doubt. Nothing is called here.

An effect is reserved before its call and confirmed after it. Between the two nobody knows whether the outside system
accepted, and no waiting makes it known: only that system can say (`reconcile`), or promise that a repeated key does no
harm (`honours_key_for_seconds`). Where it does neither, a person decides.
"""

import hashlib
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from math import isfinite

from app.domain.clean_text import clean_message
from app.domain.errors import DeadLetter

EFFECT_TYPE = re.compile(r"[a-z][a-z0-9_.-]{0,63}")
MAXIMUM_KEY = 300
MAXIMUM_EXTERNAL_ID = 500
MAXIMUM_CALL_SECONDS = 3600.0
MAXIMUM_HONOURS_SECONDS = 365 * 86400.0
SETTLES_SECONDS = 1.0
"""How long after a call's deadline it counts as in the air: what was sent at last may still be accepted."""
_LEAST_CALL_SECONDS = 0.5
_LONGEST_SNOOZE_SECONDS = 30.0
_LEAST_LIVE_SNOOZE_SECONDS, _LIVE_SNOOZE_SECONDS = 1.0, 5.0
_BREATH_SECONDS = 0.1


class EffectState(StrEnum):
    """Where an effect stands; the values are part of the REST contract."""

    RESERVED = "reserved"
    CONFIRMED = "confirmed"
    NOT_SENT = "not_sent"
    IN_DOUBT = "in_doubt"


@dataclass(frozen=True, slots=True)
class Found:
    """An effect that exists under a key. Times are the database's.

    `alive` says that the attempt which reserved it still owns its task, so that its call may be in the air.
    """

    state: EffectState
    fingerprint: str
    first_reserved_at: datetime
    call_until: datetime
    alive: bool
    external_id: str | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What a handler declares about an effect."""

    call_timeout_seconds: float = 30.0
    honours_key_for_seconds: float = 0.0
    has_reconcile: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """Call, for at most so long."""

    within_seconds: float


@dataclass(frozen=True, slots=True)
class Skip:
    """It has happened: take the id that is kept."""

    external_id: str | None


@dataclass(frozen=True, slots=True)
class Snooze:
    """Somebody's call may still be answered: come back later."""

    seconds: float
    why: str


@dataclass(frozen=True, slots=True)
class Reconcile:
    """Ask the outside system whether it happened."""


@dataclass(frozen=True, slots=True)
class InDoubt:
    """Nobody can know: a person must say."""


@dataclass(frozen=True, slots=True)
class KeyReused:
    """The key belongs to an effect of another type or with other arguments."""


Decision = Call | Skip | Snooze | Reconcile | InDoubt | KeyReused


def decide(
    found: Found | None, fingerprint: str, now: datetime, terms: Terms, *, answered_no: bool = False
) -> Decision:
    """Say what follows for a key; `answered_no` when the outside system has just said that it did not happen.

    A call may be repeated only by the outside system's word: inside the time for which it honours the key, counted from
    the first reservation, or after it said that nothing happened. What is known not to have been sent is as good as
    new, also with other arguments.
    """
    if found is None or found.state is EffectState.NOT_SENT:
        return Call(terms.call_timeout_seconds)
    if found.fingerprint != fingerprint:
        return KeyReused()
    if found.state is EffectState.CONFIRMED:
        return Skip(found.external_id)
    settled_at = found.call_until + timedelta(seconds=SETTLES_SECONDS)
    if found.state is EffectState.RESERVED and (found.alive or now < settled_at):
        left = (settled_at - now).total_seconds()
        if found.alive:
            return Snooze(min(_LIVE_SNOOZE_SECONDS, max(_LEAST_LIVE_SNOOZE_SECONDS, left)), "effect_in_flight")
        return Snooze(min(_LONGEST_SNOOZE_SECONDS, left + _BREATH_SECONDS), "effect_settling")
    if answered_no:
        return Call(terms.call_timeout_seconds)
    if terms.has_reconcile:
        return Reconcile()
    honoured_until = found.first_reserved_at + timedelta(seconds=terms.honours_key_for_seconds)
    left = (honoured_until - now).total_seconds()
    if left >= _LEAST_CALL_SECONDS:
        return Call(min(terms.call_timeout_seconds, left))
    return InDoubt()


def check_terms(effect_type: str, key: str, terms: Terms) -> None:
    """Check what a handler asked for. Raises DeadLetter (`invalid_effect`) that says what it should be."""
    if not isinstance(effect_type, str) or not EFFECT_TYPE.fullmatch(effect_type):
        raise _invalid("effect_type should be 1 to 64 of a-z, 0-9, _, . and -, starting with a letter")
    if not isinstance(key, str) or not 1 <= len(key) <= MAXIMUM_KEY or not key.isprintable() or not _is_utf8(key):
        raise _invalid(f"key should be a text of 1 to {MAXIMUM_KEY} printable characters")
    if not _between(terms.call_timeout_seconds, 0.001, MAXIMUM_CALL_SECONDS):
        raise _invalid(f"call_timeout_seconds should be above 0 and at most {MAXIMUM_CALL_SECONDS:.0f}")
    if not _between(terms.honours_key_for_seconds, 0, MAXIMUM_HONOURS_SECONDS):
        raise _invalid(f"honours_key_for_seconds should be from 0 to {MAXIMUM_HONOURS_SECONDS:.0f}")


def _invalid(what: str) -> DeadLetter:
    return DeadLetter("invalid_effect", f"ctx.effect: {what}")


def _between(value: object, least: float, most: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return isfinite(value) and least <= value <= most


def _is_utf8(text: str) -> bool:
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in text)


def idempotency_key_of(tenant_id: str, key: str) -> str:
    """Give the key that the outside system sees: the same for ever, and no internal name can be read from it.

    It has the form of a UUID, which is what the strictest of the common interfaces accept.
    """
    digest = hashlib.sha256(f"despacho effect\0{tenant_id}\0{key}".encode()).digest()
    return str(uuid.UUID(bytes=digest[:16], version=5))


def fingerprint_of(effect_type: str, arguments: tuple[object, ...]) -> str:
    """Give a short text that differs when the type or the arguments do, and is the same in every process.

    Objects without a value of their own (clients, functions) count by their type alone.
    """
    spelled = "\0".join([effect_type, *(_spell(one, 0) for one in arguments)])
    return hashlib.sha256(spelled.encode("utf-8", "surrogatepass")).hexdigest()[:32]


_DEEPEST = 60


def _spell(value: object, depth: int) -> str:
    """Spell a value: a model like the mapping that it becomes in JSON, a tuple like a list, 1.0 like 1."""
    if depth > _DEEPEST:
        return "…"
    if value is None or isinstance(value, bool):
        return repr(value)
    if isinstance(value, Enum):
        return _spell(value.value, depth + 1)
    if isinstance(value, str):
        return repr(str.__str__(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return "b" + hashlib.sha256(value).hexdigest()
    if isinstance(value, int | float):
        return repr(int(value)) if isfinite(value) and value == int(value) else repr(float(value))
    parts = _parts(value)
    if isinstance(parts, Mapping):
        pairs = sorted(f"{_spell(name, depth + 1)}:{_spell(one, depth + 1)}" for name, one in parts.items())
        return "{" + ",".join(pairs) + "}"
    if isinstance(parts, list | tuple):
        return "[" + ",".join(_spell(one, depth + 1) for one in parts) + "]"
    if isinstance(parts, set | frozenset):
        return "[" + ",".join(sorted(_spell(one, depth + 1) for one in parts)) + "]"
    plain = type(value).__module__ in _PLAIN_MODULES
    return repr(f"{value}") if plain else f"<{type(value).__module__}.{type(value).__qualname__}>"


_PLAIN_MODULES = frozenset({"datetime", "decimal", "uuid", "pathlib", "fractions", "ipaddress", "zoneinfo"})


def _parts(value: object) -> object:
    """Give what a value is made of: a model's or dataclass's fields, or the value itself."""
    dump = getattr(type(value), "model_dump", None)
    if dump is not None:
        fields: object = dump(value)
        return fields
    if names := getattr(type(value), "__dataclass_fields__", None):
        return {name: getattr(value, name) for name in names}
    if names := getattr(type(value), "__struct_fields__", None):
        return {name: getattr(value, name) for name in names}
    return value


def external_id_of(returned: object) -> str | None:
    """Make the id that is kept from what a call returned: a text or a whole number; anything else is no id."""
    if isinstance(returned, int) and not isinstance(returned, bool):
        returned = str(returned)
    if not isinstance(returned, str):
        return None
    return clean_message(returned[:MAXIMUM_EXTERNAL_ID], "") or None
