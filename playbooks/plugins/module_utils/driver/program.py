"""The command line of ``grapnel-driver``: what the Ansible module calls, and what a person on the node can call.

``run`` is what the transient unit executes. Answers are JSON documents on standard output, messages go to standard
error. Exit codes: 0 done, 1 not done and the message says why, 2 usage, 70 a bug.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (
    MAX_CHANGE_BYTES,
    ChangeError,
    parse_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.verify import find_differences
from ansible_collections.grapnel.node.plugins.module_utils.driver.mig.process import (
    AFTER_REBOOT,
    print_layout,
    restore_noted,
    restore_remembered,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.reboot import reboot
from ansible_collections.grapnel.node.plugins.module_utils.driver.record import reserve
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import (
    FINISHED,
    NEEDS_REBOOT,
    RETURNED,
    RUNNING,
    RunRecord,
    is_going_back,
    read_run,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import (
    StoreError,
    current_change,
    open_store,
    read_change,
    staged_folder,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.status import read_status
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.actions import plan_work
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.run import BACK, REMOVE, SWAP, carry_out
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node, StepError
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.target import forward_target
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.unit import (
    BEFORE_RELEASE,
    LAUNCH,
    is_active,
    only_run,
    start_unit,
    wait_for_unit,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host, HostError
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE, NOT_DONE, USAGE, BUG = 0, 1, 2, 70
_TIMEOUT_S = 7200.0
_COLLECT = "collect"
_OPTIONS = {"stage": ("--offline", "--no-tools"), _COLLECT: ("--no-modules", "--no-tools")}
_MIG: dict[tuple[str, ...], Callable[[Host], str]] = {
    (): lambda _host: print_layout(),
    ("restore",): restore_remembered,
    ("restore", AFTER_REBOOT): restore_noted,
}
_HERE = "--here"  # in this process, which is in a scope of its own already
_SCOPE = ("--scope", "--quiet", "--collect", "--property=CPUWeight=1", "--property=IOWeight=1", "--")
_HELP = """usage: grapnel-driver VERB

  stage          prepare the change on standard input: download, build, nothing is disturbed; with --offline
                 nothing is downloaded, with --no-tools no compiler is installed
  collect        download the change on standard input for machines that have less than this one, and build its
                 modules, into collected/ID.tar; with --no-modules packages alone, with --no-tools as for stage
  check ID       look whether a staged change could be swapped in now; with --before-release the node daemon does not
                 count as a holder
  swap ID        change to a staged driver; continues a run that was cut short
  back           return to what was there before
  remove         take the driver away
  reboot         reboot the node for a run that needs it and is allowed to; the same verb goes on afterwards
  verify         compare the driver with the change that the node runs
  mig            tell how the GPUs are cut by MIG; a run restores that after it has loaded the module
  status         tell what is staged, what runs, and what became of the last run

`swap`, `back` and `remove` run in the unit grapnel-driver.service and are waited for; with --timeout SECONDS no longer
than that. See docs/drivers/on-the-node.md.
"""


class UsageError(Exception):
    """The command line is wrong; the message says how."""


def main(arguments: Sequence[str], node: Node | None = None) -> int:
    """Run a verb and return the exit code."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_HELP)
        return DONE if arguments else USAGE
    try:
        return _call(arguments[0], list(arguments[1:]), node or Node(Host(), find_manager(Host())))
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n{_HELP}")
        return USAGE
    except (ChangeError, StoreError, StepError, PackageError, HostError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return NOT_DONE


def _call(verb: str, words: list[str], node: Node) -> int:
    if verb in (SWAP, BACK, REMOVE):
        timeout_s = _take_timeout(words)
        return _in_unit(node, verb, _subject(verb, words), timeout_s)
    if verb == "run" and words and words[0] in (SWAP, BACK, REMOVE):
        return _run(node, words[0], _subject(words[0], words[1:]))
    if verb == "check":
        return _check(_before_release(node, words), _subject(SWAP, words))
    if verb in _OPTIONS:
        return _stage(node, verb, words)
    if verb == "mig" and tuple(words) in _MIG:
        sys.stdout.write(f"{_MIG[tuple(words)](node.host)}\n")
        return DONE
    if words:
        raise UsageError(f"{verb} takes no {words[0]!r}")
    if verb == "status":
        return _answer(node.host, DONE)
    if verb == "verify":
        return _verify(node)
    if verb == "reboot":
        sys.stderr.write(f"the node reboots: {reboot(node.host)}\n")
        return DONE
    raise UsageError(f"there is no verb {verb!r}")


def _subject(verb: str, words: list[str]) -> str:
    """Return the name of a change, which only a swap has."""
    if len(words) != (verb == SWAP):
        raise UsageError(f"{verb} takes {'the name of a staged change' if verb == SWAP else 'no name'}")
    if verb == SWAP:
        staged_folder(words[0])
        return words[0]
    return ""


def _before_release(node: Node, words: list[str]) -> Node:
    """Take the option: whoever asks has the node daemon let go of the GPUs before a swap."""
    if BEFORE_RELEASE not in words:
        return node
    words.remove(BEFORE_RELEASE)
    return replace(node, is_before_release=True)


def _take_timeout(words: list[str]) -> float:
    if "--timeout" not in words:
        return _TIMEOUT_S
    place = words.index("--timeout")
    try:
        timeout_s = float(words[place + 1])
    except (IndexError, ValueError):
        raise UsageError("--timeout takes a number of seconds") from None
    del words[place : place + 2]
    return timeout_s


def _in_unit(node: Node, verb: str, subject: str, timeout_s: float) -> int:
    """Start the unit, or watch the one that carries out the same, and tell what became of it."""
    host = node.host
    open_store(host)
    before = read_run(host)
    if is_active(host) and not _is_asked_for(before, verb, subject):
        before = _after_another(node, before, timeout_s)
        if verb == BACK and before is not None and before.state == RETURNED:
            return _answer(host, DONE)  # it has gone back by itself: another way back would lead further
    if not is_active(host):
        plan_work(node, verb, subject)  # what is wrong with it is told here, not only in the unit's log
        if not is_going_back(before):
            reserve.keep(host)
        start_unit(host, [verb, subject] if subject else [verb])
    if not wait_for_unit(host, timeout_s, node.clock):
        raise StoreError(f"`{verb}` still runs after {timeout_s:g} s, and goes on: `status` tells what becomes of it")
    after = read_run(host)
    is_new = after is not None and (before is None or after != before or before.is_open)
    if not is_new or after is None or after.state == RUNNING:
        raise StoreError(f"`{verb}` has ended without a result: see journalctl --unit=grapnel-driver, and run it again")
    if after.state == NEEDS_REBOOT:
        sys.stderr.write(f"the node has to reboot: {after.reboot}; run `reboot`, and this again once it is up\n")
    return _answer(host, DONE if _is_done(verb, after) else NOT_DONE)


def _is_asked_for(record: RunRecord | None, verb: str, subject: str) -> bool:
    return record is not None and record.is_open and record.verb == verb and subject in {"", record.change}


def _after_another(node: Node, record: RunRecord | None, timeout_s: float) -> RunRecord | None:
    """Wait until another run has come to its end, and return its record; raises `StoreError` when time is up."""
    begun = "another run" if record is None else f"`{f'{record.verb} {record.change}'.strip()}`"
    sys.stderr.write(f"{begun} changes the driver of this node now: waiting for its end\n")
    if not wait_for_unit(node.host, timeout_s, node.clock):
        raise StoreError(f"{begun} changes the driver of this node now, and still does after {timeout_s:g} s")
    return read_run(node.host)


def _is_done(verb: str, record: RunRecord) -> bool:
    """Tell whether a run came to the end that was asked for: one that was cut short ends as what it was."""
    return record.state == FINISHED or (verb == BACK and record.state == RETURNED)


def _run(node: Node, verb: str, subject: str) -> int:
    """Carry a run out in this process; whoever stops the unit is told to wait, see `unit`."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    open_store(node.host)
    with only_run(node.host):
        record = carry_out(node, plan_work(node, verb, subject))
    sys.stdout.write(f"{record.state}: {record.reboot or record.reason or record.verb}\n")
    return DONE if _is_done(verb, record) else NOT_DONE


def _check(node: Node, subject: str) -> int:
    open_store(node.host)
    problems: list[str] = []
    try:
        plan_work(node, SWAP, subject).check()
    except (StoreError, StepError, PackageError) as error:
        problems.append(str(error))
    _print({"change": subject, "problems": problems})
    return NOT_DONE if problems else DONE


def _verify(node: Node) -> int:
    identifier = current_change(node.host)
    if identifier is None:
        raise StoreError("no driver change was swapped in on this node")
    folder = staged_folder(identifier)
    target = forward_target(node.host, folder, read_change(node.host, folder), node.manager.suffix)
    # What somebody else held when the change was staged, he may have released since.
    differences = find_differences(node.host, node.manager, replace(target, kept=frozenset()))
    _print({"change": identifier, "differences": differences})
    return NOT_DONE if differences else DONE


def _stage(node: Node, verb: str, words: list[str]) -> int:
    """Stage or collect in a scope of its own, which gets what others leave of processors and disk."""
    unknown = [word for word in words if word not in (_HERE, *_OPTIONS[verb])]
    if unknown:
        raise UsageError(f"{verb} takes no {unknown[0]!r}")
    systemd_run = node.host.find_command("systemd-run")
    if _HERE not in words and systemd_run is not None:
        os.execv(systemd_run, [systemd_run, *_SCOPE, *LAUNCH, verb, _HERE, *words])
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import (  # noqa: PLC0415 - not for a swap
        StageOptions,
    )
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.verbs import (  # noqa: PLC0415 - not for a swap
        collect,
        stage,
    )

    change = parse_change(sys.stdin.buffer.read(MAX_CHANGE_BYTES + 1))
    options = StageOptions(
        offline="--offline" in words,
        install_tools="--no-tools" not in words,
        without_modules="--no-modules" in words,
    )
    result = (collect if verb == _COLLECT else stage)(node.host, change, options, node.clock)
    _print(result.document())
    return DONE if result.complete else NOT_DONE


def _answer(host: Host, code: int) -> int:
    _print({**read_status(host), "active": is_active(host)})
    return code


def _print(document: dict[str, Any]) -> None:
    with contextlib.suppress(BrokenPipeError):  # whoever asked has gone
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        sys.stdout.flush()
