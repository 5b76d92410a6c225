"""Calls the installed program ``grapnel-driver`` for the module `driver`, and reads what it answers."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Callable

from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (
    NO_DRIVER,
    DriverChange,
    change_id,
    render_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
    from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import InstalledPackage

LAUNCHER = "/usr/lib/grapnel/driver/grapnel-driver"
_SLACK_S = 60.0  # the program ends its own waiting before we end it
_QUERY_TIMEOUT_S = 60.0
_CHECK_TIMEOUT_S = 600.0  # it digests the set, and waits two minutes for somebody who changes packages
_TIMED_OUT = 124
_NOT_FOUND = 127
_USAGE = 2

Document = dict[str, Any]
Call = Callable[["Sequence[str]", bytes, float], Finished]


class ProgramError(Exception):
    """The program cannot be called, or has no answer; the message says what to do."""


def call_program(arguments: Sequence[str], given: bytes, timeout_s: float) -> Finished:
    """Run the program with a document on its standard input."""
    try:
        done = subprocess.run(
            [LAUNCHER, *arguments],
            input=given,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired:
        return Finished(_TIMED_OUT, stderr=f"grapnel-driver {arguments[0]} took longer than {timeout_s:g} s")
    except OSError as error:
        return Finished(_NOT_FOUND, stderr=f"{LAUNCHER} or the interpreter that it names: {error.strerror}")
    return Finished(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def is_installed(host: Host) -> bool:
    """Tell whether the node has the program."""
    return host.path(LAUNCHER).exists()


def read_status(call: Call) -> Document:
    """Return what the program says about the node; raises `ProgramError`."""
    return _answer(call(["status"], b"", _QUERY_TIMEOUT_S), "status")


def stage(call: Call, verb: str, change: DriverChange, options: Sequence[str], timeout_s: float) -> Document:
    """Stage or collect a change, and return what became of it; raises `ProgramError`."""
    return _answer(call([verb, *options], render_change(change), timeout_s), verb)


def check(call: Call, identifier: str) -> list[str]:
    """Return why a staged change could not be swapped in once the GPUs are released; raises `ProgramError`."""
    answer = _answer(call(["check", identifier, "--before-release"], b"", _CHECK_TIMEOUT_S), "check")
    return [str(line) for line in answer.get("problems", [])]


def carry_out(call: Call, verb: str, identifier: str, timeout_s: float) -> Document:
    """Have a verb carried out and wait for its end; returns the status then, and raises `ProgramError`."""
    words = [verb, *([identifier] if identifier else []), "--timeout", f"{timeout_s:g}"]
    return _answer(call(words, b"", timeout_s + _SLACK_S), verb)


def _answer(done: Finished, verb: str) -> Document:
    """Return the document that the program printed; without one, raise with what it said instead."""
    if done.return_code == _USAGE:
        raise ProgramError(
            f"the grapnel-driver of this node does not know `{verb}` ({done.complaint}): it is older than this "
            "collection; run site.yml, which installs the one that belongs to it"
        )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise ProgramError(f"grapnel-driver {verb} failed: {done.complaints}")
    return answer


def is_done(verb: str, status: Document) -> bool:
    """Tell whether a verb has done what it is for: the way back from a swap that was cut short is that swap's own."""
    state = (status.get("run") or {}).get("state")
    return state == "done" or (verb == "back" and state == "returned")


def reason_of(status: Document) -> str:
    """Return what a run that did not end well says of itself, and what to do."""
    run = status.get("run") or {}
    state, reason = run.get("state"), run.get("reason")
    hints = {
        "failed": "nothing was changed",
        "returned": "the node has its former driver again",
        "quarantined": "the node stays out of service: see docs/drivers/on-the-node.md",
    }
    return f"the driver's {run.get('verb')} ended {state}: {reason} ({hints.get(str(state), 'run it again')})"


def describe_staging(change: DriverChange) -> dict[str, str]:
    """Return a diff of what is kept ready on the node: everything of the change, or nothing yet."""
    return describe_difference(change, {}, NO_DRIVER) | {"before_header": "not staged"}


def describe_difference(change: DriverChange, installed: Mapping[str, InstalledPackage], loaded: str) -> dict[str, str]:
    """Return a diff of the node's packages and module, as it is and as the change has it."""
    names = sorted({*change.names, *change.remove})
    wanted = {one.name: one.version for one in change.packages}
    before = [f"{name} {installed[name].version}" for name in names if name in installed]
    after = [f"{name} {wanted[name]}" for name in names if name in wanted]
    module = loaded if change.module is None else change.module
    return {
        "before": "\n".join([*before, *_module(loaded), ""]),
        "after": "\n".join([*after, *_module(module), ""]),
        "before_header": "driver",
        "after_header": f"driver change {change_id(change)}",
    }


def _module(version: str) -> list[str]:
    return [] if version == NO_DRIVER else [f"kernel module nvidia {version}"]
