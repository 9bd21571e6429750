"""Ids: the shape of a ULID, its time, and no two alike."""

import time

import pytest

from app.ids import is_id, mint

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def test_an_id_has_its_noun_and_carries_the_time_it_was_minted() -> None:
    before = time.time_ns() // 1_000_000

    minted = mint("task")

    noun, _, ulid = minted.partition("_")
    milliseconds = 0
    for letter in ulid[:10]:
        milliseconds = milliseconds * 32 + _ALPHABET.index(letter)
    assert noun == "task"
    assert len(ulid) == 26
    assert before <= milliseconds <= time.time_ns() // 1_000_000


def test_no_two_ids_are_alike_and_later_ones_sort_later() -> None:
    many = [mint("task") for _ in range(20_000)]

    assert len(set(many)) == len(many)
    assert [one[:15] for one in many] == sorted(one[:15] for one in many)


@pytest.mark.parametrize(
    "value",
    [
        "task_01JZ8W4W9GZK4K2GZ7Q2ABCD1", "task_01JZ8W4W9GZK4K2GZ7Q2ABCD123", "task_01JZ8W4W9GZK4K2GZ7Q2ABCD12\n",
        "dead_01JZ8W4W9GZK4K2GZ7Q2ABCD12", "task_81JZ8W4W9GZK4K2GZ7Q2ABCD12", "task_01jz8w4w9gzk4k2gz7q2abcd12",
        "task_01JZ8W4W9GZK4K2GZ7Q2ABCDIL", "task_../../etc/passwd", "task_", "", "task",
    ],
)  # fmt: skip
def test_what_is_no_id_of_a_task_is_told(value: str) -> None:
    assert not is_id("task", value)
    assert is_id("task", mint("task"))
