"""The exceptions that handlers raise on purpose."""

import pickle

from app.domain.errors import DeadLetter, Retry


def test_they_travel_between_processes_whole() -> None:
    retry = pickle.loads(pickle.dumps(Retry(after_seconds=3, message="provider busy")))  # noqa: S301
    dead = pickle.loads(pickle.dumps(DeadLetter("invalid_payload", "no such page")))  # noqa: S301

    assert (retry.after_seconds, retry.message, str(retry)) == (3, "provider busy", "provider busy")
    assert (dead.error_type, dead.message, str(dead)) == ("invalid_payload", "no such page", "no such page")


def test_a_retry_needs_no_arguments() -> None:
    assert (Retry().after_seconds, Retry().message) == (None, "")
