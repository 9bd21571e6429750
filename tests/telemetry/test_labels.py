import pytest

from app.telemetry.labels import OTHER, ROUTE, UNKNOWN, BoundedLabel, FixedLabel


@pytest.mark.parametrize(
    ("raw", "label"),
    [
        ("classify_document", "classify_document"),
        ("0.1.0+build.7", "0.1.0+build.7"),
        ("with space", OTHER),
        ('quote"and\\slash\n', OTHER),
        ("lone\ud800surrogate", OTHER),
        ("nul\x00", OTHER),
        ("größe", OTHER),
        ("https://user:password@host/", OTHER),
        ("x" * 500, OTHER),
        ("", UNKNOWN),
        (None, UNKNOWN),
        (17, UNKNOWN),
    ],
)
def test_what_is_no_code_is_no_label(raw: str | None, label: str) -> None:
    assert BoundedLabel(10)(raw) == label


def test_a_route_template_is_a_label_of_routes_alone() -> None:
    assert BoundedLabel(10, ROUTE)("/v1/tasks/{task_id}") == "/v1/tasks/{task_id}"
    assert BoundedLabel(10)("/v1/tasks/{task_id}") == OTHER


def test_values_beyond_the_bound_are_other_and_the_first_ones_stay() -> None:
    label = BoundedLabel(3)

    seen = [label(f"name{number}") for number in range(500)]

    assert seen[:3] == ["name0", "name1", "name2"]
    assert set(seen[3:]) == {OTHER}
    assert label("name1") == "name1"


def test_reserved_names_keep_their_place_in_a_flood() -> None:
    label = BoundedLabel(2)
    label.reserve(["timeout", "worker_lost", "rate_limit"])

    flood = {label(f"invented{number}") for number in range(100)}

    assert flood == {OTHER}
    assert label("rate_limit") == "rate_limit"


def test_a_closed_vocabulary_lets_nothing_else_in() -> None:
    label = FixedLabel(["GET", "POST"])

    assert (label("GET"), label("BREW"), label(None)) == ("GET", OTHER, UNKNOWN)
