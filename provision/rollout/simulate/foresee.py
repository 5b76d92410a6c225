"""Foresees how long a planned roll-out takes: plays it in virtual time with the medians of what nodes measured.

Medians, and no draws: one node, which writes its own record, moves them little, and a plan says the same each time.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.rollout.interface.cluster import NodeProblem
from provision.rollout.interface.standing import Forecast, WaveForecast
from provision.rollout.model import Phase
from provision.rollout.simulate.chance import Chance
from provision.rollout.simulate.cluster import SimulatedCluster
from provision.rollout.simulate.many import waves_of
from provision.rollout.simulate.play import build, resolution_s, roll_out
from provision.rollout.simulate.scenario import NodeModel, PodModel, Scenario, Spread
from provision.rollout.status.estimate import foreseeing, reckon

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from provision.rollout.decision.policy import Policy
    from provision.rollout.decision.prepare import Prepared
    from provision.rollout.decision.snapshot import NodeState
    from provision.rollout.simulate.playback import Playback
    from provision.rollout.status.estimate import Measures

PLAYED: Final = 500  # nodes up to which it is played
CPU_S: Final = 5.0  # after which a roll-out is reckoned instead, such as one whose windows are short and far apart
_IN_TIME: Final = 0.9  # of the declared limit of a drain: pods that need longer are not what is foreseen here


def foresee(prepared: Prepared, now: datetime) -> Forecast | None:
    """Return what is expected of the roll-out, or None."""
    if not prepared.rollout:
        return None
    states = {state.name: state for state in prepared.states}
    going = [states[name] for name in prepared.rollout if not states[name].kept_out]
    measures = foreseeing(
        (state.record for state in prepared.states if state.record is not None),
        {state.target for state in going},
        is_in_place=all(state.kind.is_in_place for state in going),
    )
    uncounted = _uncounted(prepared, going)
    node_s = measures.whole_s
    if node_s is None:
        return Forecast(measured=measures.nodes, uncounted=uncounted)
    waves = _played(prepared, measures, now)
    is_played = waves is not None
    if waves is None:
        waves = reckon(going, prepared.policy, node_s)
        blind = ("windows, blackouts",) if prepared.policy.calendar is not None else ()
        uncounted = (*blind, *uncounted)
    return Forecast(
        seconds=max((wave.ends_s for wave in waves), default=0.0),
        measured=measures.nodes,
        is_played=is_played,
        waves=waves,
        uncounted=uncounted,
    )


def _uncounted(prepared: Prepared, going: list[NodeState]) -> tuple[str, ...]:
    jobs = sum(bool(state.view.jobs or state.view.work) for state in going)
    left = len(prepared.rollout) - len(going)
    parts = (
        f"jobs that {jobs} nodes wait for" if jobs > 1 else "jobs that a node waits for" if jobs else "",
        "a person who looks at a held wave" if any(wave.is_held for wave in prepared.policy.waves[:-1]) else "",
        "how long NodeMaintenances take to be ready" if any(state.view.maintenance for state in going) else "",
        *(f"gate {gate.name}, which is closed now" for gate in prepared.gates if not gate.is_open),
        f"{left} nodes that do not begin" if left > 1 else "a node that does not begin" if left else "",
    )
    return tuple(part for part in parts if part)


def _played(prepared: Prepared, measures: Measures, now: datetime) -> tuple[WaveForecast, ...] | None:
    """Return the waves as they were played; None where that takes too long, or does not come to its end."""
    if len(prepared.states) > PLAYED:
        return None
    scenario = _scenario(prepared, measures, now)
    chance = Chance(scenario, 1)
    cluster = SimulatedCluster(build(scenario, chance))
    views = cluster.observe([state.name for state in prepared.states])
    states = [
        replace(state, view=view, is_disruptive=_is_changed(state, prepared))
        for state in prepared.states
        if not isinstance(view := views[state.name], NodeProblem)
    ]
    policy = _unattended(prepared.policy)
    played = roll_out(chance, cluster, states, policy, batch_s=resolution_s(scenario), is_enough=_spent())
    kept = {state.name for state in prepared.states if state.kept_out}
    going = set(prepared.rollout) - kept
    if any(node.ending is not Phase.DONE for node in played.nodes if node.name in going):  # or it was cut off
        return None
    return _waves(played, policy, going)


def _spent() -> Callable[[], bool]:
    end_s = time.process_time() + CPU_S
    return lambda: time.process_time() >= end_s


def _is_changed(state: NodeState, prepared: Prepared) -> bool:
    return state.is_disruptive or (state.is_in_flight and state.name in prepared.rollout)


def _unattended(policy: Policy) -> Policy:
    waves = tuple(replace(wave, is_held=False) for wave in policy.waves)
    return replace(policy, waves=waves, waits=True, despite=None)


def _waves(played: Playback, policy: Policy, rollout: set[str]) -> tuple[WaveForecast, ...]:
    own = replace(played, nodes=tuple(node for node in played.nodes if node.name in rollout))
    soaks = [wave.soak.total_seconds() for wave in policy.waves] or [0.0]
    return tuple(
        WaveForecast(title=wave.title, nodes=wave.nodes, begins_s=wave.began_s, ends_s=wave.ended_s, soak_s=soak_s)
        for wave, soak_s in zip(waves_of(own), soaks, strict=True)
        if wave.began_s is not None and wave.ended_s is not None
    )


def _scenario(prepared: Prepared, measures: Measures, now: datetime) -> Scenario:
    medians = dict(measures.medians)
    limit_s = min((state.drain.limit.total_seconds() for state in prepared.states), default=0.0)
    if Phase.DRAIN in medians:
        medians[Phase.DRAIN] = min(medians[Phase.DRAIN], limit_s * _IN_TIME)
    return Scenario(
        nodes=tuple(_node(state) for state in prepared.states),
        target="",
        start=now,
        policy=prepared.policy,
        durations={phase: Spread(median_s) for phase, median_s in medians.items()},
    )


def _node(state: NodeState) -> NodeModel:
    """Return a node as it is before it begins; one in flight counts as a whole one, and its cordon as ours."""
    view, record = state.view, state.record
    is_out = record is not None and not record.phase.is_in_service
    pods = [*view.gpu_pods] if not is_out else []
    return NodeModel(
        name=state.name,
        driver=state.origin or ("" if state.target else "none"),
        pods=tuple(
            PodModel(name=str(pod), controller=pod.controller, is_daemon=pod.is_mirror_or_daemon or bool(pod.stays))
            for pod in pods
        ),
        labels=view.labels,
        is_cordoned=record.was_cordoned if record is not None and is_out else view.is_cordoned,
        is_ready=view.is_ready or state.is_in_flight,
        is_skipped=bool(state.kept_out),
    )
