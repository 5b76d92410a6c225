"""Each kind of module is built by one node, whoever fails, and nobody waits for ever."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from provision.builds.assignment import MAX_BUILDERS, Situation, choose_providers, left_alone
from tests.provision.builds.samples import build_of

if TYPE_CHECKING:
    from provision.builds.model import ModuleBuild

A, B, C = (build_of(f"6.{number}") for number in (1, 2, 3))


def situation(needs: dict[str, tuple[ModuleBuild, ...]], **more: object) -> Situation:
    """Every node that needs a build could make it."""
    able = {build: [node for node, needed in needs.items() if build in needed] for build in (A, B, C)}
    return Situation(**{"needs": needs, "able": able, **more})  # type: ignore[arg-type] # fields, by name


def test_the_first_node_of_each_kind_builds() -> None:
    found = situation({"n1": (A,), "n2": (B,), "n3": (A,), "n4": (B,)})
    assert choose_providers(found) == {"n1": (A,), "n2": (B,)}


def test_a_node_that_is_alone_in_its_kind_builds_for_nobody() -> None:
    found = situation({"n1": (A,), "n2": (B,)})
    assert choose_providers(found) == {}
    assert left_alone(found) == {A: ("n1",), B: ("n2",)}


def test_a_node_with_two_kernels_builds_for_both_and_nothing_twice() -> None:
    assert choose_providers(situation({"n1": (A, B), "n2": (A,), "n3": (B,)})) == {"n1": (A, B)}


def test_a_node_that_needs_what_another_builds_waits_for_the_next_round() -> None:
    found = situation({"n1": (A,), "n2": (A, B), "n3": (B,)})
    assert choose_providers(found) == {"n1": (A,)}
    after = situation({"n1": (A,), "n2": (A, B), "n3": (B,)}, there=frozenset({A}))
    assert choose_providers(after) == {"n2": (B,)}


def test_who_has_it_already_hands_it_on() -> None:
    found = Situation(needs={"n2": (A,)}, able={A: ("n1", "n2")})
    assert choose_providers(found) == {"n1": (A,)}


def test_the_next_node_takes_over_from_one_that_failed() -> None:
    needs = {"n1": (A,), "n2": (A,), "n3": (A,)}
    assert choose_providers(situation(needs, tried={A: frozenset({"n1"})})) == {"n2": (A,)}


def test_after_three_failures_every_node_builds_its_own() -> None:
    needs = {f"n{number}": (A,) for number in range(1, 6)}
    found = situation(needs, tried={A: frozenset({"n1", "n2", "n3"})})
    assert choose_providers(found) == {}
    assert left_alone(found) == {A: tuple(needs)}


def test_nobody_takes_over_from_a_declared_builder() -> None:
    needs = {"n1": (A,), "n2": (A,)}
    assert choose_providers(situation(needs, able={A: ("n2",)})) == {"n2": (A,)}
    assert choose_providers(situation(needs, able={A: ("n2",)}, tried={A: frozenset({"n2"})})) == {}


@pytest.mark.parametrize("seed", range(50))
def test_rounds_end_with_everything_built_or_given_up(seed: int) -> None:
    """Whoever fails at whatever: no build is made by two that succeed, none is tried too often, and there is an end."""
    chance = random.Random(seed)  # noqa: S311 - a fleet of a test
    needs = {
        f"n{n}": tuple(sorted(chance.sample((A, B, C), chance.randint(0, 3)))) for n in range(chance.randint(1, 8))
    }
    tried: dict[ModuleBuild, frozenset[str]] = {}
    there: set[ModuleBuild] = set()
    for _ in range(3 * MAX_BUILDERS + 1):
        chosen = choose_providers(situation(needs, tried=tried, there=frozenset(there)))
        if not chosen:
            break
        provided = [build for builds in chosen.values() for build in builds]
        assert len(provided) == len(set(provided))
        assert there.isdisjoint(provided)
        for node, builds in chosen.items():
            for build in builds:
                if chance.random() < 0.5:
                    there.add(build)
                else:
                    tried[build] = tried.get(build, frozenset()) | {node}
    else:
        pytest.fail("the rounds do not end")
    for build in {build for needed in needs.values() for build in needed} - there:
        wanting = [node for node, needed in needs.items() if build in needed]
        attempts = min(MAX_BUILDERS, len(wanting)) if len(wanting) > 1 else 0
        assert len(tried.get(build, frozenset())) == attempts
