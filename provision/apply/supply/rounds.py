"""Has modules built by two nodes for all of a kind, a round at a time, for playbooks that carry the rounds out.

The playbook stages the nodes of a round, gets what they have built onto the shelf, and asks for the next round, until
none is left. `provision.apply.supply.builders` does the same in one go, with the same decisions and the same checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from provision.apply.playbooks import handed_files
from provision.apply.supply.builders import describe_left_alone
from provision.apply.supply.kinds import Kinds, is_to_stage
from provision.declaration.spec.text.excerpt import few
from provision.planning.supply.builds.assignment import choose_providers
from provision.planning.supply.builds.model import ModuleBuild
from provision.planning.supply.runfile.errors import RunfileError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.apply.model import Assessment
    from provision.apply.supply.supply import Supply


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes that did not provide a build when it was their turn."""

    build: ModuleBuild
    nodes: tuple[str, ...]


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """One round: ``providers`` are staged, and give their builds. None are left in the last one.

    ``handover`` is what each node that is to be staged can be handed now, as the module of that name takes it.
    ``refused`` are nodes that cannot be staged, with the reason. ``machines`` tell the providers' machines apart.
    ``notes`` are for people.
    """

    providers: dict[str, tuple[ModuleBuild, ...]] = {}
    tried: tuple[Tried, ...] = ()
    handover: dict[str, list[dict[str, Any]]] = {}
    refused: dict[str, str] = {}
    machines: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()


def next_round(supply: Supply, answers: Mapping[str, Assessment], before: Round, *, expects_more: bool) -> Round:
    """Return the round after ``before``, from what the nodes are now and what the shelf has."""
    kinds = Kinds(supply, dict(answers), frozenset(answers), dict(_tried(before)), expects_more=expects_more)
    situation = kinds.situation()
    kept = list(kinds.take_kept(situation))
    for node, builds in before.providers.items():
        for build in builds:
            if node not in {answer.node for answer in situation.standing(build).answers}:
                kinds.tried[build] = kinds.tried.get(build, frozenset()) | {node}
    situation = kinds.situation()
    chosen = choose_providers(situation)
    told = [*(() if before.providers else kept), *kinds.handings(chosen, situation)]
    handovers = dict(_handovers(supply, answers))
    return Round(
        providers=chosen,
        tried=tuple(Tried(build=build, nodes=tuple(sorted(nodes))) for build, nodes in kinds.tried.items()),
        handover={node: found for node, found in handovers.items() if not isinstance(found, str)},
        refused={node: found for node, found in handovers.items() if isinstance(found, str)},
        machines={node: situation.machines[node] for node in chosen},
        notes=(*(f"{few(one.nodes)} {one}" for one in told), *(() if chosen else describe_left_alone(kinds))),
    )


def _tried(before: Round) -> Iterator[tuple[ModuleBuild, frozenset[str]]]:
    for one in before.tried:
        yield one.build, frozenset(one.nodes)


def _handovers(supply: Supply, answers: Mapping[str, Assessment]) -> Iterator[tuple[str, list[dict[str, Any]] | str]]:
    """Yield the files for each node, or why they cannot be handed over."""
    for node, answer in answers.items():
        try:
            handover = supply.handover(answer) if is_to_stage(answer) else None
        except RunfileError as error:
            yield node, f"{error.message} ({error.hint})"
            continue
        if handover is not None:
            yield node, handed_files(handover.files)
