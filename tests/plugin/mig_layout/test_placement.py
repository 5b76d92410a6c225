"""Instances find a legal place wherever there is one, and those that are there stay if they can."""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING

import pytest

from plugin.changes.mig_layout.model import parse_profile
from plugin.changes.mig_layout.placement import arrange, group
from tests.plugin.mig_layout.gpus import H100, instance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.changes.mig_layout.model import Instance
    from plugin.changes.mig_layout.placement import Placed, Wanted


def wanted(*names: str) -> tuple[Wanted, ...]:
    return group([parse_profile(name) for name in names], H100)


def places(found: Sequence[Placed] | None) -> list[tuple[str, int]]:
    assert found is not None
    return [(each.instance.profile, each.instance.start) for each in found]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["1g.10gb"] * 7, id="seven of the smallest"),
        pytest.param(["4g.40gb", "3g.40gb"], id="the one place of the larger is taken by it"),
        pytest.param(["3g.40gb", "2g.20gb", "1g.10gb"], id="one of each"),
        pytest.param(["1g.20gb"] * 4, id="four with twice the memory"),
        pytest.param(["2g.20gb"] * 3 + ["1g.20gb"], id="the last slices are no place for a 2g"),
        pytest.param(["1g.10gb+me", "3g.40gb", "1g.10gb", "2g.20gb"], id="one with media extensions"),
    ],
)
def test_what_nvidia_lists_as_possible_finds_its_places(names: list[str]) -> None:
    found = arrange(wanted(*names), ())
    assert sorted(name for name, _ in places(found)) == sorted(names)


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(["1g.10gb"] * 8, id="one more than there are"),
        pytest.param(["4g.40gb"] * 2, id="two with one place"),
        pytest.param(["1g.10gb+me"] * 2, id="media extensions twice"),
        pytest.param(["7g.80gb", "1g.10gb"], id="something beside everything"),
        pytest.param(["2g.20gb"] * 4, id="slices that are no place"),
    ],
)
def test_what_does_not_fit_has_no_places(names: list[str]) -> None:
    assert arrange(wanted(*names), ()) is None


def test_what_is_there_stays_where_it_is() -> None:
    there = [instance("3g.40gb", 4, number=1), instance("1g.10gb", 2, number=2)]
    found = arrange(wanted("1g.10gb", "3g.40gb", "1g.10gb"), there)
    assert {("3g.40gb", 4), ("1g.10gb", 2)} < set(places(found))


def test_what_is_used_is_worth_more_than_anything_else() -> None:
    there = [instance("1g.10gb", 0, number=1, holders=("pod a",)), instance("3g.40gb", 4, number=2)]
    found = arrange(wanted("4g.40gb", "1g.10gb"), there)
    assert found is None, "a 4g has only the place that begins where somebody is"
    assert places(arrange(wanted("3g.40gb", "1g.10gb"), there)) == [("1g.10gb", 0), ("3g.40gb", 4)]


def test_an_instance_without_its_compute_instances_is_completed() -> None:
    (found,) = arrange(wanted("1c.3g.40gb", "2c.3g.40gb"), [instance("3g.40gb", 4, 2)]) or ()
    assert (found.instance.start, found.lacks) == (4, (1,))


def test_devices_of_one_profile_share_instances_as_far_as_they_fit() -> None:
    assert [each.compute for each in wanted(*["1c.3g.40gb"] * 4, "2c.3g.40gb")] == [(2, 1), (1, 1, 1)]


def brute(names: tuple[str, ...]) -> bool:
    """Whether any assignment of places is without overlap: tried one by one."""
    choices = [next(profile for profile in H100 if profile.name == name).places for name in names]
    for chosen in itertools.product(*choices):
        slices = [start + offset for start, size in chosen for offset in range(size)]
        if len(slices) == len(set(slices)):
            return True
    return False


def test_there_is_an_arrangement_wherever_trying_everything_finds_one() -> None:
    chance = random.Random(15)
    sizes = [profile for profile in H100 if profile.name != "1g.10gb+me"]
    for _ in range(150):
        names = tuple(chance.choice(sizes).name for _ in range(chance.randint(1, 5)))
        most = all(names.count(profile.name) <= profile.most for profile in sizes)
        assert (arrange(wanted(*names), ()) is not None) == (most and brute(names)), names


def test_no_arrangement_overlaps_and_nobody_who_works_is_moved() -> None:
    chance = random.Random(16)
    for _ in range(200):
        there: list[Instance] = []
        for number, profile in enumerate(chance.sample(H100, 4)):
            start = chance.choice(profile.places)[0]
            holders = ("pod a",) if chance.random() < 0.5 else ()
            one = instance(profile.name, start, number=number, holders=holders)
            if all(one.start >= each.start + each.size or each.start >= one.start + one.size for each in there):
                there.append(one)
        names = [each.profile for each in there if chance.random() < 0.8]
        found = arrange(wanted(*names, "1g.10gb"), there)
        if found is None:
            continue
        slices = [each.instance.start + offset for each in found for offset in range(each.instance.size)]
        assert len(slices) == len(set(slices))
        assert {each.id for each in there if each.holders} <= {each.instance.id for each in found}
