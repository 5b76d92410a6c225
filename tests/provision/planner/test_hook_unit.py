"""The unit that keeps the driver inventory up to date: an apply that was killed before it is made up for."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.facts.node import NodeFacts, Service
from provision.planning.planner.runtime.runtime import HOOK_UNIT
from tests.provision.samples import PAYLOAD, RUNNING, configured, make_facts, plan, replace, steps


def with_unit(facts: NodeFacts, unit: Service) -> NodeFacts:
    return replace(facts, services=facts.services | {HOOK_UNIT: unit})


@pytest.mark.parametrize(
    ("unit", "actions"),
    [
        pytest.param(Service(load="not-found"), ["enable"], id="killed before it was linked"),
        pytest.param(Service(load="loaded", active="inactive", enabled="linked"), ["start"], id="killed after that"),
        pytest.param(
            Service(load="loaded", active="inactive", enabled="disabled"), ["enable", "start"], id="switched off"
        ),
        pytest.param(Service(load="loaded", active="inactive", enabled="enabled"), ["start"], id="stopped"),
    ],
)
def test_an_installed_hook_whose_unit_is_not_in_force_is_finished(unit: Service, actions: list[str]) -> None:
    result = plan(with_unit(configured(), unit))

    assert steps(result.items) == [(action, HOOK_UNIT) for action in actions]
    assert result.roles.runtime is not None
    assert result.roles.runtime.runtime_hook_archive == PAYLOAD.hook.path, "the role does all of the hook again"
    assert not result.roles.runtime.runtime_restart


def test_a_unit_in_force_is_left_alone() -> None:
    assert plan(with_unit(configured(), RUNNING)).is_empty


def test_a_hook_that_is_installed_brings_its_unit_with_it() -> None:
    result = plan(with_unit(make_facts(), Service(load="not-found")))

    assert HOOK_UNIT not in {item.target for item in result.items}


def test_facts_of_an_earlier_release_say_nothing_of_it() -> None:
    assert HOOK_UNIT not in configured().services
    assert plan(configured()).is_empty
