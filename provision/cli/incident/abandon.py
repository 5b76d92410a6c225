"""`grapnel abandon`: takes nodes out of their upgrade and leaves them to a person."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from provision.apply.follow import follow
from provision.apply.gather import gather_facts
from provision.apply.interrupt import cancel_on_signals
from provision.apply.model import Failure
from provision.base.errors import ExitCode, UsageError
from provision.cli.answers import Answers
from provision.cli.incident.node_request import ask, foresee, open_requests
from provision.cli.session.context import build_context
from provision.cli.session.fleet import load_fleet
from provision.report.console import make_console
from provision.report.progress.live import open_view
from provision.rollout.requests import Step, abandon, uncordon

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection

    from provision.apply.context import ApplyContext
    from provision.cli.incident.node_request import Asking
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.rollout.requests import Found, RequestResult
    from provision.rollout.status.model import Reader

FOLLOW_S: Final = 2.0
# Two renewals of the lease: by the second, an engine has observed the nodes again, and published what it is at.
SETTLED: Final = timedelta(seconds=20)
_PLANNED: Final = "nothing is changed: this is what would be done, and what is said then"


def run(args: argparse.Namespace) -> int:
    """Forget the records, and put the nodes back into service if that is wanted."""
    answers = Answers("abandon", args.json)
    if not args.uncordon:
        if args.plan:
            answers.say(_PLANNED)
            return answers.end(foresee(open_requests(args), abandon, answers))
        return answers.end(ask(open_requests(args), abandon, answers))
    if not args.yes and not args.plan and not sys.stdin.isatty():
        hint = "add --yes"
        raise UsageError("abandon --uncordon asks first, and standard input is not a terminal", hint=hint)
    asking = open_requests(args)
    args.limit = ",".join(asking.nodes)
    context = build_context(args, load_fleet(args), environment=os.environ)
    if args.plan:
        answers.say(_PLANNED)
        return answers.end(foresee_put_back(context, asking, answers))
    if not args.yes and not _confirm(asking):
        answers.say("nothing was changed")
        return answers.end(ExitCode.FAILED)
    return answers.end(put_back(context, asking, answers))


def _confirm(asking: Asking) -> bool:
    what = f"put {', '.join(asking.nodes)} back into service as they stand, without verifying the driver"
    print(f"{what}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def foresee_put_back(context: ApplyContext, asking: Asking, answers: Answers) -> int:
    """Tell what `put_back` would do as things are, and change nothing; return the exit code that it would have."""
    found: dict[str, Found] = {}

    def decide(each: Found) -> RequestResult:
        found[each.view.name] = each
        return abandon(each)

    code = foresee(asking, decide, answers)
    if code != ExitCode.DONE:
        return code
    offline = replace(context, playbooks=replace(context.playbooks, offline=True))
    with cancel_on_signals() as cancel, open_view(make_console(sys.stderr), tuple(found), time.monotonic) as view:
        facts = gather_facts(context.runner, offline.playbooks.facts(tuple(found)), view, cancel)
    for node, each in found.items():
        if reason := _why_not(facts[node]):
            answers.say(f"its GPUs are not offered, and it stays cordoned: {reason}", node)
            code = ExitCode.FAILED
            continue
        answer = facts[node]
        if not isinstance(answer, Failure) and answer.is_released:
            answers.would(node, [Step("resume", "GPUs")])
        if _was_cordoned(each):
            answers.say("offers its GPUs, and stays cordoned as it was before the upgrade", node)
        elif node in asking.scheduled:
            answers.say("offers its GPUs, and stays drained: resume it in its scheduler", node)
        else:
            foresee(asking.only({node}), _uncordon_without_record, answers)
    return code


def _uncordon_without_record(found: Found) -> RequestResult:
    return uncordon(replace(found, view=replace(found.view, record=None)))


def _was_cordoned(found: Found) -> bool:
    """Tell whether the cordon is older than the upgrade that has the node."""
    record = found.view.record
    return record is not None and not found.is_over and record.was_cordoned


def put_back(context: ApplyContext, asking: Asking, answers: Answers) -> int:
    """Abandon the nodes, wait until no process works at them, and put them back into service; return the exit code."""
    kept: set[str] = set()

    def decide(found: Found) -> RequestResult:
        if _was_cordoned(found):
            kept.add(found.view.name)
        return abandon(found)

    code = ask(asking, decide, answers)
    if code != ExitCode.DONE:
        return code
    for requests in dict.fromkeys(asking.requests.values()):
        wait_until_left(requests.reader(), asking.nodes, answers)
    resumed = resume_daemons(context, asking.nodes, answers)
    for node in sorted(kept & resumed):
        was_cordoned = f"stays cordoned as it was before the upgrade: `kubectl uncordon {node}`"
        answers.say(f"offers its GPUs, and {was_cordoned}", node)
    for node in sorted(resumed & asking.scheduled):
        answers.say("offers its GPUs, and stays drained: resume it in its scheduler", node)
    again = ask(asking.only(resumed - kept - asking.scheduled), uncordon, answers)
    return again if len(resumed) == len(asking.nodes) else ExitCode.FAILED


def wait_until_left(reader: Reader, nodes: Collection[str], answers: Answers) -> None:
    """Look until no engine is at any of the nodes: a step that has begun goes on to its end."""
    seen = reader.look()
    since = None if seen.tenant is None else seen.tenant.heard
    is_told = False
    while seen.tenant is not None and seen.tenant.is_at_work:
        is_at_them = seen.standing is not None and not seen.standing.out.isdisjoint(nodes)
        heard = seen.tenant.heard
        if not is_at_them and since is not None and heard is not None and heard - since >= SETTLED:
            return
        if not is_told:
            answers.say(f"waits until {seen.tenant.holder} has left {', '.join(nodes)} alone")
            is_told = True
        seen = reader.follow(FOLLOW_S)


def resume_daemons(context: ApplyContext, nodes: Collection[str], answers: Answers) -> set[str]:
    """Have the node daemons offer the GPUs again; return the nodes on which that went well."""
    offline = replace(context, playbooks=replace(context.playbooks, offline=True))
    reasons: dict[str, str] = {}
    with cancel_on_signals() as cancel, open_view(make_console(sys.stderr), tuple(nodes), time.monotonic) as view:
        for node, facts in gather_facts(context.runner, offline.playbooks.facts(nodes), view, cancel).items():
            reason = _why_not(facts)
            if not reason:
                request = context.playbooks.daemon("resume", node, {})
                failure = follow(context.runner, request, view, cancel).failure
                reason = "" if failure is None else failure.message
            if reason:
                reasons[node] = reason
    for node, reason in reasons.items():
        answers.say(f"its GPUs are not offered, and it stays cordoned: {reason}", node)
    return {node for node in nodes if node not in reasons}


def _why_not(facts: NodeFacts | Failure) -> str:
    """Return why a node cannot offer its GPUs now."""
    if isinstance(facts, Failure):
        return facts.message
    run = facts.driver.run
    is_running = run is not None and run.state == "running"
    return "a driver change still runs on it; run the same command again when it is over" if is_running else ""
