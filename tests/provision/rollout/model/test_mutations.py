"""Each invariant is violated by an engine that is broken where it matters, and the model finds that."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from provision.rollout.changes import plan as verb_plan
from provision.rollout.decision import advance, census, decide
from provision.rollout.decision.admission import NOTHING, Admission
from provision.rollout.decision.order.domains import Domains
from provision.rollout.decision.order.waves import Turn
from provision.rollout.decision.order.zones import ZoneLimits
from provision.rollout.engine import Engine
from provision.rollout.model import Phase, Record
from provision.rollout.simulate.cluster import SimulatedCluster
from provision.rollout.states import entered, stepped
from tests.provision.rollout.model.events import Event, drawn
from tests.provision.rollout.model.policies import NEWER
from tests.provision.rollout.model.shrink import violated

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.rollout.decision.snapshot import Write

    Break = Callable[[pytest.MonkeyPatch], None]

MOST = 600  # interleavings: most breaks are found within a few


def answer(where: object, name: str, what: Any) -> Break:
    """Have a function of the engine always return the same."""
    return lambda patch: patch.setattr(where, name, lambda *_, **__: what)


def forgets_to_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Admission, "take", lambda *_: None)


def without_step(phase: Phase) -> Break:
    """Have the engine leave a phase whose step it has not run."""
    return lambda patch: patch.setattr(advance, "_WITHOUT_STEP", (*advance._WITHOUT_STEP, phase))


def writes(change: Callable[[Write], Write]) -> Break:
    """Have the engine enter phases with something else than it should write."""

    def patched(patch: pytest.MonkeyPatch) -> None:
        enter = advance._enter
        patch.setattr(advance, "_enter", lambda *given: change(enter(*given)))

    return patched


def frees_failed_nodes(patch: pytest.MonkeyPatch) -> None:
    quarantine = advance._quarantine
    patch.setattr(advance, "_quarantine", lambda *given: replace(quarantine(*given), cordoned=False))


def counts_failed_nodes_as_available(patch: pytest.MonkeyPatch) -> None:
    def count(found: census.Census, node: Any) -> None:
        if node.record is None or node.record.phase is not Phase.FAILED:
            count_out(found, node)

    count_out = census._count_out
    patch.setattr(census, "_count_out", count)


def tries_failed_nodes_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("provision.rollout.engine.entered", lambda *given: replace(entered(*given), has_failed=False))
    patch.setattr(decide, "why_broken", lambda *_: None)


def forgets_that_it_has_swapped(patch: pytest.MonkeyPatch) -> None:
    def forgetful(node: Any, *given: Any) -> Any:
        after = stepped(node, *given)
        return replace(after, is_disruptive=node.is_disruptive, is_as_declared=node.is_as_declared)

    patch.setattr("provision.rollout.engine.stepped", forgetful)


def fences_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedCluster, "check_lease", lambda _cluster: None)


def keeps_a_cordon(write: Write) -> Write:
    return replace(write, cordoned=None) if write.record.phase.is_in_service else write


def lifts_every_cordon(write: Write) -> Write:
    return replace(write, cordoned=False) if write.record.phase.is_in_service else write


def gives_no_reason(write: Write) -> Write:
    record: Record = write.record
    return replace(write, record=replace(record, reason="")) if record.has_failed else write


BREAKS = {
    "more nodes out than may be": (answer(Admission, "_why_no_room", NOTHING), "begins, and .* are out"),
    "nodes that begin together are not counted": (forgets_to_count, "begins beside"),
    "more nodes of a zone out than may be": (answer(ZoneLimits, "why_full", ""), "and of its zone .* are out"),
    "two drivers in service in a domain": (answer(Domains, "of", None), "is back beside"),
    "a node uncordoned that was not verified": (without_step(Phase.VERIFY), "and was not verified"),
    "a node uncordoned that does not offer its GPUs": (without_step(Phase.RESUME), "does not offer its GPUs"),
    "a driver swapped while GPUs are in use": (without_step(Phase.RELEASE), "was not released"),
    "a driver swapped under pods": (answer(advance, "has_to_leave", ()), "is swapped under"),
    "a driver swapped twice": (forgets_that_it_has_swapped, "is swapped twice"),
    "a cordon that nobody lifts": (writes(keeps_a_cordon), "is cordoned: True"),
    "somebody else's cordon lifted": (writes(lifts_every_cordon), "is uncordoned, which .* wants not"),
    "a node that waits without a reason": (answer(advance, "waits_for_jobs", ""), "waits and nobody says why"),
    "a failure without a reason": (writes(gives_no_reason), "fails without a reason"),
    "a pod evicted outside its window": (
        lambda patch: patch.setattr(decide, "outside_hours", lambda _node, _record, action, held, *_: (action, held)),
        "is evicted outside its window",
    ),
    "a node begun outside its window": (answer(decide, "_why_closed", ("", 0)), "begins outside its window"),
    "a node begun while a gate is closed": (answer(decide, "_why_closed", ("", 0)), "although a gate is closed"),
    "a node begun during a pause": (answer(Engine, "_observe_pause", None), "begins although that is paused"),
    "a node begun that is to be skipped": (answer(Admission, "_why_unfit", NOTHING), "others want it left alone"),
    "a node begun that is not ready": (answer(Admission, "_why_unfit", NOTHING), "begins and is not ready"),
    "a node begun after too many failures": (answer(decide, "why_broken", None), "begins after failures"),
    "a node begun after the canary failed": (answer(decide, "why_broken", None), "of the canary have failed"),
    "a node begun before its wave": (answer(decide, "whose_turn", Turn(wave=9)), "which is in an earlier wave"),
    "a node begun while others soak": (answer(Admission, "_why_soaking", NOTHING), "begins while .* soak"),
    "a failed node put into service": (frees_failed_nodes, "is uncordoned in failed"),
    "a failed node counted as available": (counts_failed_nodes_as_available, "begins, and .* are out"),
    "a failed node tried again unasked": (tries_failed_nodes_again, "and nobody asked for that"),
    "jobs that are not waited for": (
        lambda patch: patch.setattr(
            advance, "_wait_for_jobs", lambda node, record, now, *_: (advance._go_on(node, record, now), "")
        ),
        "is drained under its jobs",
    ),
    "a step without the lease": (fences_nothing, "without the lease"),
    "a rollback that leads too far back": (answer(verb_plan, "_is_done", what=False), "after it went back to"),
}

# What is rarely drawn.
PLAYED: dict[str, list[Event]] = {
    "a failed node counted as available": [
        ("break_step", "n1", Phase.RELEASE),
        ("go_on", "ada", 34),
        ("skip", "n1"),
        ("go_on", "ada", 34),
    ],
    "a rollback that leads too far back": [
        ("apply", "ada"),
        ("turns", "ada", 400),
        ("declare", NEWER, 0),
        ("go_on", "ada", 400),
        ("rollback", "ada"),
        ("turns", "ada", 13),
        ("kill", "ada"),
        ("freeze", 50.0),
        ("rollback", "ada"),
        ("turns", "ada", 34),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BREAKS)
def test_the_model_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, told = BREAKS[name]
    assert not violated(PLAYED.get(name, ()))
    broken(monkeypatch)
    interleavings = [PLAYED[name]] if name in PLAYED else (drawn(seed) for seed in range(MOST))
    assert any(re.search(told, violated(events)) for events in interleavings)
