"""Each kind of module is built by two nodes that are drawn, whoever fails, and nobody waits for ever."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from provision.planning.supply.builds.assignment import MAX_BUILDERS, Situation, choose_providers, left_alone
from provision.planning.supply.builds.model import GivenBuild
from provision.planning.supply.builds.proof import Standing
from tests.provision.builds.samples import build_of

if TYPE_CHECKING:
    from provision.planning.supply.builds.model import ModuleBuild

A, B, C = (build_of(f"6.{number}") for number in (1, 2, 3))
ONE, OTHER = {"nvidia.ko": "1"}, {"nvidia.ko": "2"}


def situation(needs: dict[str, tuple[ModuleBuild, ...]], **more: object) -> Situation:
    """Every node that needs a build could make it; the draw is in their order."""
    able = {build: [node for node, needed in needs.items() if build in needed] for build in (A, B, C)}
    return Situation(**{"needs": needs, "able": able, **more})  # type: ignore[arg-type] # fields, by name


def standing(build: ModuleBuild, **given: dict[str, str]) -> Standing:
    """What nodes gave, each a machine of its own."""
    answers = [
        GivenBuild(build=build, node=node, machine=(node,), sha256="a" * 64, content=one) for node, one in given.items()
    ]
    return Standing(build, tuple(answers))


def nodes(*names: str, build: ModuleBuild = A) -> dict[str, tuple[ModuleBuild, ...]]:
    return dict.fromkeys(names, (build,))


def test_two_of_each_kind_build_in_the_order_of_the_draw() -> None:
    needs = nodes("n1", "n3", "n5") | nodes("n2", "n4", "n6", build=B)
    found = situation(needs, able={A: ("n5", "n1", "n3"), B: ("n4", "n6", "n2")})
    assert choose_providers(found) == {"n5": (A,), "n1": (A,), "n4": (B,), "n6": (B,)}


@pytest.mark.parametrize("names", [("n1",), ("n1", "n2")], ids=["one", "two"])
def test_nodes_of_a_kind_with_nobody_to_hand_it_to_build_their_own(names: tuple[str, ...]) -> None:
    found = situation(nodes(*names))
    assert choose_providers(found) == {}
    assert left_alone(found) == {A: names}


def test_later_batches_are_no_reason_to_believe_the_first_two_nodes() -> None:
    assert choose_providers(situation(nodes("n1", "n2"), expects_more=True)) == {}


def test_a_node_that_needs_what_others_build_waits_for_the_next_round() -> None:
    needs = {"n1": (A,), "n2": (A,), "n3": (A, B), "n4": (B,), "n5": (B,)}
    assert choose_providers(situation(needs)) == {"n1": (A,), "n2": (A,), "n4": (B,)}
    after = situation(needs, standings={A: standing(A, n1=ONE, n2=ONE), B: standing(B, n4=ONE)})
    assert choose_providers(after) == {"n3": (B,)}


def test_one_more_builds_where_one_has_given_its_build_before() -> None:
    found = situation(nodes("n1", "n2", "n3"), standings={A: standing(A, n1=ONE)})
    assert choose_providers(found) == {"n2": (A,)}


def test_who_has_it_already_is_asked_when_it_is_drawn() -> None:
    found = Situation(needs=nodes("n3"), able={A: ("n1", "n2", "n3")})
    assert choose_providers(found) == {"n1": (A,), "n2": (A,)}


def test_nobody_builds_any_more_once_two_have_differed() -> None:
    found = situation(nodes("n3", "n4", "n5"), standings={A: standing(A, n1=ONE, n2=OTHER)})
    assert choose_providers(found) == {}
    assert left_alone(found) == {A: ("n3", "n4", "n5")}


def test_two_names_of_one_machine_are_not_drawn_together() -> None:
    machines = {"n1": ("id 1", "at a"), "n2": ("id 2", "at a"), "n3": ("id 1",), "n4": ("id 4",)}
    found = situation(nodes("n1", "n2", "n3", "n4"), machines=machines)
    assert choose_providers(found) == {"n1": (A,), "n4": (A,)}


def test_a_third_node_takes_over_from_one_that_failed() -> None:
    found = situation(nodes("n1", "n2", "n3", "n4"), tried={A: frozenset({"n1"})}, standings={A: standing(A, n2=ONE)})
    assert choose_providers(found) == {"n3": (A,)}


def test_after_three_failures_every_node_builds_its_own() -> None:
    needs = nodes(*(f"n{number}" for number in range(1, 7)))
    found = situation(needs, tried={A: frozenset({"n1", "n2", "n3"})})
    assert choose_providers(found) == {}
    assert left_alone(found) == {A: tuple(needs)}


def test_nobody_takes_over_from_a_declared_builder() -> None:
    build = build_of("6.1", builder="n2")
    needs = nodes("n1", "n2", build=build)
    assert choose_providers(situation(needs, able={build: ("n2",)})) == {"n2": (build,)}
    assert choose_providers(situation(needs, able={build: ("n2",)}, tried={build: frozenset({"n2"})})) == {}


@pytest.mark.parametrize("seed", range(50))
def test_rounds_end_with_everything_built_twice_or_given_up(seed: int) -> None:
    """Whoever fails at whatever: no build is given by more than two, none is tried too often, and there is an end."""
    chance = random.Random(seed)
    needs = {
        f"n{n}": tuple(sorted(chance.sample((A, B, C), chance.randint(0, 3)))) for n in range(chance.randint(1, 8))
    }
    tried: dict[ModuleBuild, frozenset[str]] = {}
    given: dict[ModuleBuild, dict[str, dict[str, str]]] = {A: {}, B: {}, C: {}}
    for _ in range(3 * (MAX_BUILDERS + 2) + 1):
        standings = {build: standing(build, **each) for build, each in given.items()}
        chosen = choose_providers(situation(needs, tried=tried, standings=standings))
        if not chosen:
            break
        for node, builds in chosen.items():
            for build in builds:
                assert node not in given[build]
                if chance.random() < 0.6:
                    given[build][node] = ONE
                else:
                    tried[build] = tried.get(build, frozenset()) | {node}
    else:
        pytest.fail("the rounds do not end")
    for build, each in given.items():
        wanting = [node for node, needed in needs.items() if build in needed]
        failed = len(tried.get(build, ()))
        assert len(each) <= 2
        assert len(each) == 2 or failed >= MAX_BUILDERS or len(wanting) <= 2 + failed
