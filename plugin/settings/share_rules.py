"""What shares and memory units come to: rules for the offer, or why they cannot be. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.devices.sharing import ShareRule
from plugin.devices.sharing import Strategy as Division
from plugin.settings.nvidia.sharing import MPS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from plugin.settings.nvidia.sharing import Sharing

_SHARED = ".shared"


def plan_shares(sharing: Sharing) -> tuple[ShareRule, ...]:
    """Return the rules of a file of NVIDIA's form."""
    return tuple(
        ShareRule(
            Division.MPS if strategy.name == MPS else Division.TIME_SLICING,
            share.resource,
            share.rename or (share.resource + _SHARED if strategy.rename_by_default else share.resource),
            replicas=share.replicas,
            chosen=share.devices,
            refuses_several=strategy.refuses_several,
            origin=share.origin,
        )
        for strategy in sharing.strategies
        for share in strategy.shares
    )


def contradictions(rules: Sequence[ShareRule]) -> Iterator[str]:
    """Yield why rules cannot hold beside one another: a device is divided once, and a name means one thing."""
    for number, rule in enumerate(rules):
        for other in rules[:number]:
            if other.resource == rule.resource and _may_overlap(other, rule):
                yield (
                    f"{rule.origin}: {rule.resource} is divided into {rule.describe()}, and into {other.describe()} by "
                    f"{other.origin}: name other devices in each, or leave one out"
                )
            elif other.shown_as == rule.shown_as and other.strategy is not rule.strategy:
                yield (
                    f"{rule.origin}: {rule.shown_as} would be {rule.describe()} and, by {other.origin}, "
                    f"{other.describe()}: give one of them another name"
                )


def _may_overlap(one: ShareRule, other: ShareRule) -> bool:
    """Whether a device may be in both. Of a list beside a count nobody knows before the devices are seen."""
    if isinstance(one.chosen, tuple) and isinstance(other.chosen, tuple):
        return not set(one.chosen).isdisjoint(other.chosen)
    return True
