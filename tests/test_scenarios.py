"""The shipped disputes: each holds under its policy, or says that this version does not decide it yet."""

from functools import cache
from random import Random

import pytest

from app import scenarios
from app.domain.policy_file import parse_policy
from app.domain.simulation.engine import simulate
from app.domain.simulation.figures import Checked, check
from app.domain.simulation.hooks import THIS_VERSION
from app.domain.simulation.load import Load
from app.domain.simulation.load_file import parse_load


def test_there_are_twelve() -> None:
    assert len(scenarios.names()) == 12


def load_of(name: str) -> Load:
    path = scenarios.path_of(name)
    assert path is not None
    return parse_load(path.read_text())


@cache
def checked(name: str) -> tuple[Checked, ...]:
    load = load_of(name)
    file = scenarios.FOLDER / load.policy_file if load.policy_file else scenarios.FOLDER.parent.parent / "policy.toml"
    result = simulate(parse_policy(file.read_text()), load, Random(load.seed))
    return check(result, load.expectations, THIS_VERSION.lacks(load.needs))


@pytest.mark.parametrize("name", scenarios.names())
def test_the_dispute_holds(name: str) -> None:
    load = load_of(name)
    found = checked(name)

    assert len(found) >= 3
    if THIS_VERSION.lacks(load.needs):
        assert all(one.holds is None for one in found), "what is not decided is never counted as passed"
        return
    assert [(one.expectation, one.found) for one in found if not one.holds] == []


def test_names_that_are_no_scenario_have_no_path() -> None:
    assert scenarios.path_of("full_policy") is None
    assert scenarios.path_of("../scenarios/all_at_once") is None
