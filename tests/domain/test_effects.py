"""What follows for an effect, and that no sequence of runs calls twice without the outside system's word."""

import uuid
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from app.domain.effects import (
    SETTLES_SECONDS,
    Call,
    EffectState,
    Found,
    InDoubt,
    KeyReused,
    Reconcile,
    Skip,
    Snooze,
    Terms,
    check_terms,
    decide,
    external_id_of,
    fingerprint_of,
    idempotency_key_of,
)
from app.domain.errors import DeadLetter

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
PRINT = "f"


def _found(
    state: EffectState = EffectState.RESERVED, *, first_ago: float = 100, until_ago: float = 70, alive: bool = False
) -> Found:
    return Found(state, PRINT, NOW - timedelta(seconds=first_ago), NOW - timedelta(seconds=until_ago), alive, "T-1")


def test_the_table() -> None:
    reserved, doubt = _found(), _found(EffectState.IN_DOUBT)
    asks, honours = Terms(has_reconcile=True), Terms(honours_key_for_seconds=110)

    assert decide(None, PRINT, NOW, Terms(7)) == Call(7)
    assert decide(_found(EffectState.CONFIRMED), PRINT, NOW, asks) == Skip("T-1")
    assert decide(_found(EffectState.NOT_SENT), "other", NOW, Terms(7)) == Call(7)
    for open_ in (reserved, doubt):
        assert decide(open_, PRINT, NOW, Terms()) == InDoubt()
        assert decide(open_, PRINT, NOW, asks) == Reconcile()
        assert decide(open_, PRINT, NOW, asks, answered_no=True) == Call(30)
        assert decide(open_, PRINT, NOW, honours) == Call(10), "only what is left of the honoured time"
        assert decide(open_, PRINT, NOW, Terms(honours_key_for_seconds=100)) == InDoubt()
        assert decide(open_, "other", NOW, asks) == KeyReused()
    assert decide(_found(EffectState.CONFIRMED), "other", NOW, asks) == KeyReused()


@pytest.mark.parametrize("terms", [Terms(), Terms(has_reconcile=True), Terms(honours_key_for_seconds=1e6)])
@pytest.mark.parametrize("answered_no", [False, True])
def test_nobody_calls_or_asks_while_a_call_may_be_in_the_air(terms: Terms, answered_no: bool) -> None:
    in_time = _found(until_ago=-20)
    settling = _found(until_ago=SETTLES_SECONDS / 2)
    alive = _found(alive=True)

    for found in (in_time, settling, alive):
        assert isinstance(decide(found, PRINT, NOW, terms, answered_no=answered_no), Snooze)


@dataclass
class _Outside:
    """An outside system that keeps a key for `keeps_seconds`, and accepts a call at any moment up to its deadline."""

    keeps_seconds: float
    accepted_at: list[float]

    def take(self, at: float) -> None:
        if not self.accepted_at or at > self.accepted_at[-1] + self.keeps_seconds:
            self.accepted_at.append(at)


_STEPS = st.lists(
    st.tuples(
        st.floats(0, 60),  # seconds until the next run
        st.booleans(),  # whether its call is accepted
        st.floats(0, 1),  # when within its time it is accepted
        st.sampled_from(["answered", "lost", "refused"]),
        st.booleans(),  # whether its flight is still there at the next run
    ),
    max_size=12,
)


@given(_STEPS, st.floats(0.1, 30), st.one_of(st.just(0.0), st.floats(1, 300)), st.booleans())
def test_no_key_is_accepted_twice_by_a_system_that_keeps_its_word(
    steps: list[tuple[float, bool, float, str, bool]], call_seconds: float, keeps: float, asks: bool
) -> None:
    """Runs come at any time, calls are lost or refused, holders live on or die: one acceptance at most."""
    outside = _Outside(keeps, [])
    terms = Terms(call_seconds, keeps, asks)
    found: Found | None = None
    clock = 0.0
    for wait, accepts, share, outcome, alive in steps:
        clock += wait
        now = NOW + timedelta(seconds=clock)
        decision = decide(found, PRINT, now, terms)
        if decision == Reconcile():
            if outside.accepted_at and outside.accepted_at[0] <= clock:
                assert found is not None
                found = replace(found, state=EffectState.CONFIRMED)
                continue
            decision = decide(found, PRINT, now, terms, answered_no=True)
        if not isinstance(decision, Call):
            continue
        before = found
        fresh = before is None or before.state is EffectState.NOT_SENT
        first = now if fresh or before is None else before.first_reserved_at
        until = now + timedelta(seconds=decision.within_seconds)
        found = Found(EffectState.RESERVED, PRINT, first, until, alive)
        if outcome == "refused":
            state = EffectState.NOT_SENT if fresh else EffectState.RESERVED
            found = replace(found, state=state, call_until=now, alive=False)
        elif accepts:
            outside.take(clock + share * decision.within_seconds)
            if outcome == "answered":
                found = replace(found, state=EffectState.CONFIRMED)

    assert len(outside.accepted_at) <= 1


class _Colour(Enum):
    RED = "red"


class _Model(BaseModel):
    name: str
    amount: Decimal
    tags: set[str]


def test_a_fingerprint_tells_values_apart_and_is_the_same_for_equal_ones() -> None:
    model = _Model(name="a", amount=Decimal("1.10"), tags={"x", "y", "z"})
    same = _Model(name="a", amount=Decimal("1.10"), tags={"z", "y", "x"})

    assert fingerprint_of("t", (model, [1, 2])) == fingerprint_of("t", (same, (1.0, 2)))
    assert fingerprint_of("t", ({"a": 1, "b": None},)) == fingerprint_of("t", ({"b": None, "a": 1},))
    assert fingerprint_of("t", (_Colour.RED,)) == fingerprint_of("t", ("red",))
    assert fingerprint_of("t", (object(), NOW)) == fingerprint_of("t", (object(), NOW))
    different = [
        ("t", ()), ("u", ()), ("t", (None,)), ("t", ("None",)), ("t", (1,)), ("t", ("1",)), ("t", (True,)),
        ("t", ("a", "b")), ("t", ("ab",)), ("t", (["a", "b"],)), ("t", (b"a",)), ("t", ({"a": "b"},)), ("t", (1.5,)),
        ("t", (NOW,)), ("t", (float("nan"),)), ("t", ("\ud800",)), ("t", (model,)),
    ]  # fmt: skip
    assert len({fingerprint_of(*one) for one in different}) == len(different)


def test_a_fingerprint_of_what_holds_itself_ends() -> None:
    loop: list[object] = []
    loop.append(loop)

    assert fingerprint_of("t", (loop,)) == fingerprint_of("t", (loop,))


def test_the_outside_key_is_stable_and_says_nothing() -> None:
    key = idempotency_key_of("acme", "invoice:1")

    assert key == str(uuid.UUID(key)) == idempotency_key_of("acme", "invoice:1")
    assert key != idempotency_key_of("acm", "einvoice:1")
    assert key == "ce0ba4c7-9945-5234-a4d1-2c40384a25fb"


@pytest.mark.parametrize(
    ("effect_type", "key", "terms"),
    [
        ("", "k", Terms()), ("A b", "k", Terms()), ("x" * 65, "k", Terms()), (None, "k", Terms()),
        ("t", "", Terms()), ("t", "k" * 301, Terms()), ("t", "a\0b", Terms()), ("t", "\ud800", Terms()),
        ("t", 1, Terms()),
        ("t", "k", Terms(0)), ("t", "k", Terms(float("nan"))), ("t", "k", Terms(3601)), ("t", "k", Terms(True)),
        ("t", "k", Terms(1, -1)), ("t", "k", Terms(1, float("inf"))), ("t", "k", Terms("5")),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_what_cannot_be_an_effect_is_refused_without_a_retry(effect_type: str, key: str, terms: Terms) -> None:
    with pytest.raises(DeadLetter, match="should be") as refused:
        check_terms(effect_type, key, terms)

    assert refused.value.error_type == "invalid_effect"


def test_an_external_id_is_a_short_clean_text_or_none() -> None:
    assert external_id_of("T-1") == "T-1" and external_id_of(7) == "7"
    assert external_id_of(None) is None and external_id_of({"id": 1}) is None and external_id_of(True) is None
    assert external_id_of("") is None and external_id_of("a\0b") == "a\N{REPLACEMENT CHARACTER}b"
    assert len(external_id_of("x" * 5_000_000) or "") == 500
