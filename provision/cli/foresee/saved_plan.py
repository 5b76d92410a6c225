"""Saves what `grapnel plan` shows in a file, and holds `grapnel apply` to it."""

from __future__ import annotations

import os
import secrets
import shlex
import stat
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import provision
from provision.base import decoding
from provision.base.errors import GrapnelError, os_reason
from provision.base.printable import printable_json
from provision.base.regular_file import open_regular
from provision.cli.parsers.options import DECLARATION
from provision.cli.terminal import person, say
from provision.declaration.spec.text.excerpt import few
from provision.rollout.decision import saved_plan as saved
from provision.rollout.decision.saved_plan import Options, SavedPlan

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from provision.apply.model import Assessment, Failure
    from provision.cli.session.ahead import Seen
    from provision.cli.session.scope import Scope
    from provision.rollout.decision.prepare import Prepared

MOST_DIFFERENCES: Final = 50  # lines of them


def saver(args: argparse.Namespace, scope: Scope) -> Seen:
    """Return what saves the plan of a command line where it says."""
    options = options_of(args)
    return lambda answers, prepared: write_plan(args.out, plan_of(scope, answers, prepared, options))


def holder(args: argparse.Namespace, plan: SavedPlan, scope: Scope) -> Seen:
    """Return what refuses all but the saved plan."""
    return partial(require_same, plan, args.saved, scope)


def options_of(args: argparse.Namespace) -> Options:
    """Return the options that say what is planned."""
    said = {option.encode_name: getattr(args, option.name) for option in msgspec.structs.fields(Options)}
    words = {name: str(value) if isinstance(value, Path) else value for name, value in said.items()}
    return decoding.convert(words, Options)


def read_plan(args: argparse.Namespace) -> SavedPlan:
    """Return the saved plan that is to be applied, its options being those that the command line leaves unsaid."""
    try:
        with open_regular(args.saved) as file:
            _require_own(args.saved, os.fstat(file.fileno()))
            data = file.read(saved.MAX_BYTES + 1)
    except OSError as error:
        reason = os_reason(error)
        raise GrapnelError(
            f"{args.saved} cannot be read: {reason}", hint="`grapnel plan -o FILE` saves a plan"
        ) from error
    plan = saved.read(data, str(args.saved), provision.__version__)
    said, unsaid = options_of(args), Options(file=str(DECLARATION))
    for name in plan.options.__struct_fields__:
        if getattr(said, name) == getattr(unsaid, name):
            value = getattr(plan.options, name)
            is_path = name in {"file", "payload", "bundle", "signers", "kubeconfig"} and value is not None
            setattr(args, name, Path(value) if is_path else list(value) if name == "inventory" else value)
    return plan


def _require_own(path: Path, found: os.stat_result) -> None:
    """Refuse a file that others may write: its options name a kubeconfig and an inventory, which may run programs."""
    if found.st_uid not in (0, os.geteuid()) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise GrapnelError(
            f"{path} may be written by others than you: what it names is run with your rights",
            hint="look at it, and copy it to a file of your own with mode 0600",
        )


def write_plan(path: Path, plan: SavedPlan) -> None:
    """Write a plan that can be applied later, for its owner alone. Raises GrapnelError."""
    new = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
    try:
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(printable_json(msgspec.to_builtins(plan)).encode())
                file.flush()
                os.fsync(file.fileno())
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        reason = os_reason(error)
        raise GrapnelError(f"{path} cannot be written: {reason}", hint="name another place with --out") from error
    say(f"saved: `grapnel apply --saved {shlex.quote(str(path))}` does exactly this, or nothing", sys.stderr)


def plan_of(
    scope: Scope, answers: Mapping[str, Assessment | Failure], prepared: Prepared, options: Options
) -> SavedPlan:
    """Return what is planned as it can be saved."""
    return SavedPlan(
        grapnel=provision.__version__,
        made_at=scope.clock().isoformat(timespec="seconds"),
        made_by=person(),
        options=options,
        declarations=saved.declarations_of(scope.stacks),
        nodes=tuple(saved.node_of(node, answer) for node, answer in answers.items()),
        cluster=saved.cluster_of("" if scope.kubernetes is None else scope.kubernetes.name, prepared),
    )


def require_same(
    plan: SavedPlan, file: Path, scope: Scope, answers: Mapping[str, Assessment | Failure], prepared: Prepared
) -> None:
    """Refuse to apply a saved plan where another one is made now, and say what differs. Raises GrapnelError."""
    found = saved.differences(plan, plan_of(scope, answers, prepared, plan.options))
    if not found:
        return
    lines = [f"  {few(nodes)}: {line}" if nodes else f"  {line}" for line, nodes in found.items()]
    more = len(lines) - MOST_DIFFERENCES
    for line in [*lines[:MOST_DIFFERENCES], *([f"  and {more} more"] if more > 0 else [])]:
        say(line, sys.stderr)
    changed = list(dict.fromkeys(node for nodes in found.values() for node in nodes))
    is_other = not {each.node for each in plan.nodes} & set(answers)
    what = (
        "it is about other nodes: of another inventory, or named otherwise"
        if is_other
        else f"{few(changed) or 'the cluster'} changed since"
    )
    raise GrapnelError(
        f"nothing was changed: {file} was saved by {plan.made_by} at {plan.made_at}, and {what}",
        hint=f"`grapnel plan -o {file}` saves what would be done now, to be looked at again",
    )
