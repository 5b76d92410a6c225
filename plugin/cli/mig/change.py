"""`grapnel-node mig apply` and `restore`: cut GPUs as declared, or as they were.

Not here: how a change is made (`mig_steps`).
"""

from __future__ import annotations

import hashlib
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from plugin.base.errors import EXIT_FAILURE, EXIT_NOT_AS_WANTED, EXIT_OK, MigError
from plugin.changes.driver_change.release.record import utc
from plugin.changes.driver_change.release.store import sole_change
from plugin.changes.mig_layout.change.store import forget, read_change
from plugin.changes.mig_layout.holders import with_users
from plugin.changes.mig_layout.plan import plan_layout, plan_return
from plugin.changes.mig_layout.store import BEFORE_FILE, Before, cuts_of, read_before, read_layout, write_before
from plugin.cli.mig.show import DEFAULT_LAYOUT, Session, declared, plan_mig, plan_to_json, show_mig
from plugin.cli.mig.steps import NodeChange
from plugin.cli.session import config_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path
    from types import SimpleNamespace

    from plugin.changes.mig_layout.model import GpuLayout, GpuPlan
    from plugin.cli.mig.steps import MigResult


def run(arguments: argparse.Namespace | SimpleNamespace) -> int:
    """Run the verb and return the exit code."""
    config, limits = arguments.config, {"timeout_s": arguments.timeout, "as_json": arguments.json}
    if arguments.act == "show":
        return show_mig(config, **limits)
    if arguments.act == "restore":
        return restore_mig(config, **limits)
    layout = arguments.layout or DEFAULT_LAYOUT
    if arguments.act == "plan":
        return plan_mig(config, layout, **limits)
    return apply_mig(config, layout, at_start=arguments.at_start, **limits)


def apply_mig(config_path: Path | None, layout_path: Path, *, timeout_s: float, as_json: bool, at_start: bool) -> int:
    """Cut the GPUs as declared; returns 0, 3 where some could not be changed now, 1 where one failed.

    `at_start`: only GPUs without any instance, as after a reboot, and nothing where this layout was never applied.
    """
    if at_start and read_layout(layout_path) is None:
        return EXIT_OK
    config, layout = config_of(config_path), declared(layout_path)
    folder, wanted = config.state_folder, hashlib.sha256(repr(layout).encode()).hexdigest()
    known = read_before(folder)
    if at_start and (known is None or known.wanted != wanted):
        return EXIT_OK  # what is declared and was not applied yet waits for its turn

    def plan(gpus: Sequence[GpuLayout]) -> tuple[GpuPlan, ...]:
        plans = plan_layout(layout, gpus)
        return plans if not at_start or known is None else _only_empty(plans, gpus, known, interrupted)

    def remember(gpus: Sequence[GpuLayout]) -> None:
        """Keep what a change to the same layout, which was begun and not ended, knows of the time before it."""
        before = read_before(folder)
        if not at_start and (before is None or before.is_done or before.wanted != wanted):
            write_before(folder, Before(utc(time.time()), wanted, cuts_of(gpus)))

    with sole_change(folder, timeout_s):
        change = read_change(folder)
        interrupted = frozenset() if change is None else change.uuids
        with Session(config, timeout_s) as session:
            outcome = NodeChange(config, session, plan, timeout_s=timeout_s).run(remember)
            if not outcome.waiting:
                _note_applied(folder, wanted, session)
    return _report(outcome, as_json=as_json)


def _note_applied(folder: Path, wanted: str, session: Session) -> None:
    """Remember that the GPUs are cut so, also where nothing had to be changed for it."""
    now, before = cuts_of(with_users(session.read())), read_before(folder)
    noted = replace(before or Before(utc(time.time()), wanted, now), wanted=wanted, is_done=True, after=now)
    if noted != before:
        write_before(folder, noted)


def _only_empty(
    plans: Sequence[GpuPlan], gpus: Sequence[GpuLayout], known: Before, interrupted: frozenset[str]
) -> tuple[GpuPlan, ...]:
    """Cut GPUs without instances as they were; others are as they are wanted, or a drained node changes them."""
    cut = {gpu.uuid for gpu in gpus if gpu.instances} - interrupted
    again = {gpu.uuid: known.after[gpu.uuid] for gpu in gpus if gpu.uuid in known.after.keys() - interrupted}
    same = {plan.uuid: plan for plan in plan_return(again, gpus)}
    return tuple(
        replace(plan, steps=(), refusal="") if plan.uuid in cut else same.get(plan.uuid, plan) for plan in plans
    )


def restore_mig(config_path: Path | None, *, timeout_s: float, as_json: bool) -> int:
    """Cut the GPUs as they were before the last layout was applied; returns as `apply_mig`, and raises MigError."""
    config = config_of(config_path)
    folder = config.state_folder
    with sole_change(folder, timeout_s):
        before = read_before(folder)
        if before is None:
            hint = "`grapnel-node mig apply` remembers it before it changes a gpu"
            raise MigError("nothing is remembered of how gpus were cut", hint)
        cuts = before.gpus
        with Session(config, timeout_s) as session:
            change = NodeChange(config, session, lambda gpus: plan_return(cuts, gpus), timeout_s=timeout_s)
            outcome = change.run(lambda _gpus: None)
        if not outcome.waiting:
            forget(folder, BEFORE_FILE)
    return _report(outcome, as_json=as_json)


def _report(outcome: MigResult, *, as_json: bool) -> int:
    code = EXIT_FAILURE if outcome.failed else EXIT_NOT_AS_WANTED if outcome.waiting else EXIT_OK
    if as_json:
        document = {
            "changed": [{"uuid": step.uuid, "step": str(step)} for step in outcome.done],
            "waiting": outcome.waiting,
            "gpus": [plan_to_json(plan) for plan in outcome.plans],
            "notes": outcome.notes,
        }
        print(json.dumps(document, indent=2))
        return code
    for step in outcome.done:
        print(f"{step.uuid}: {step}")
    for uuid, why in outcome.waiting.items():
        print(f"{uuid}: not as wanted: {why}")
    if not outcome.done and not outcome.waiting:
        print("the gpus are cut as wanted already")
    for note in outcome.notes:
        print(f"note: {note}")
    return code
