"""Calls the node daemon for its half of a driver swap, ``release``, ``verify``, ``resume``, and its look for drift.

A node without a daemon offers nothing: to release it is to find out who holds a GPU, and to verify it is to check the
loaded kernel module.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import loaded_version
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import (
    DAEMON_UNIT,
    DRIVER_SERVICES,
    RELEASED,
    SITE_MARK,
)
from ansible_collections.grapnel.node.plugins.module_utils.use.device_holders import read_device_holders

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Finished, Host

LAUNCHER = "/usr/lib/grapnel/node/grapnel-node"
_DRIFT_UNIT = "grapnel-drift.service"
_DRIFT_RESULT = "/var/lib/grapnel/drift/result.json"  # of the daemon's program (docs/contracts/node-drift)
_RESULT_LIMIT_BYTES = 1024 * 1024
_SLACK_S = 30.0  # the command ends its own waiting before we end it
_DONE = 0
_USAGE = 2
_NOT_AS_WANTED = 3
_AGAIN_S = 0.5
_OFFERING = ("resume", "offered")

Result = dict[str, Any]


class DaemonError(Exception):
    """The call failed; the message says what to do."""


@dataclass(frozen=True)
class Call:
    """A verb with what it needs. ``wait_s`` is for holders to go; ``marked`` is for what the caller itself released."""

    verb: str
    timeout_s: float
    wait_s: float = 0.0
    expect: Result | None = None
    marked: bool = False


def is_installed(host: Host) -> bool:
    """Tell whether the node has a daemon."""
    return host.path(LAUNCHER).exists()


def start_comparison(host: Host) -> None:
    """Have the node compared with its declaration, beside everything else; where that is not done, nothing happens."""
    if host.path(f"/etc/systemd/system/{_DRIFT_UNIT}").exists():
        host.run(["systemctl", "start", "--no-block", _DRIFT_UNIT], _SLACK_S)


def compare_again(host: Host) -> None:
    """Start another comparison where the last one found drift: the node may have been repaired since.

    Its own next look is in an hour, and until then everybody believes that it is not.
    """
    try:
        result = json.loads(host.read_text(_DRIFT_RESULT, _RESULT_LIMIT_BYTES) or "")
    except (ValueError, RecursionError):
        return
    if isinstance(result, dict) and result.get("state") == "drifted":
        start_comparison(host)


def is_released(host: Host) -> bool:
    """Tell whether the node's GPUs are out of service."""
    return host.path(RELEASED).exists()


def would_change(host: Host, call: Call) -> bool:
    """Tell whether a verb changes what the node offers."""
    if not is_installed(host) or call.verb in {"verify", "offered"}:
        return False
    return is_released(host) != (call.verb == "release") and not _is_others(host, call)


def _is_others(host: Host, call: Call) -> bool:
    """Tell whether a resume would put GPUs back into service that somebody else took out of it."""
    return call.verb == "resume" and call.marked and not host.path(SITE_MARK).exists()


def call_daemon(host: Host, call: Call, clock: Clock) -> Result:
    """Call the daemon of a node and return its answer; raises `DaemonError`."""
    if call.verb == "release":
        return _release(host, call, clock)
    if call.verb == "verify":
        with _as_file(call.expect or {}) as path:
            return _run(host, call, ["--expect", path])
    if _is_others(host, call):
        return {}
    result = _run(host, call, [])
    host.path(SITE_MARK).unlink(missing_ok=True)
    return result


def _release(host: Host, call: Call, clock: Clock) -> Result:
    """Release, again and again until nobody holds a GPU or time is up.

    The driver's own services are no holders: the exchange of the kernel module stops them and starts them again.
    """
    if call.marked and not is_released(host):
        host.path(SITE_MARK).parent.mkdir(parents=True, exist_ok=True, mode=0o755)
        host.path(SITE_MARK).touch(mode=0o644)
    deadline = clock.now() + call.wait_s
    while True:
        result = _run(host, call, [])
        holders = [one for one in result.get("holders", []) if one.get("unit") not in DRIVER_SERVICES]
        if not holders or clock.now() >= deadline:
            return {**result, "holders": holders}
        clock.sleep(_AGAIN_S)


@contextlib.contextmanager
def _as_file(value: Result) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", prefix="grapnel-", suffix=".json", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        yield file.name


def _run(host: Host, call: Call, more: list[str]) -> Result:
    command = [LAUNCHER, call.verb, "--json", "--timeout", f"{call.timeout_s:g}", *more]
    done = host.run(command, call.timeout_s + _SLACK_S)
    if done.return_code == _USAGE:
        raise DaemonError(
            f"the grapnel-node of this node does not know `{call.verb}` ({done.complaint}): it is older than this "
            "collection; update the node daemon first: site.yml --tags node_daemon"
        )
    result = _parse(done)
    is_answer = done.return_code == _DONE or (done.return_code == _NOT_AS_WANTED and call.verb not in _OFFERING)
    if not is_answer or result is None:
        raise DaemonError(f"grapnel-node {call.verb} failed: {_reason(done, result)}")
    return result


def _parse(done: Finished) -> Result | None:
    try:
        result = json.loads(done.stdout)
    except ValueError:
        return None
    return result if isinstance(result, dict) else None


def _reason(done: Finished, result: Result | None) -> str:
    problems = (result or {}).get("problems") or []
    return "; ".join(map(str, problems)) or done.complaints


def inspect(host: Host, call: Call) -> Result:
    """Return the answer for a node without a daemon, or, in check mode, what is true before the call."""
    if call.verb == "release":
        holders = [one for one in read_device_holders(host) if one["unit"] not in (DAEMON_UNIT, *DRIVER_SERVICES)]
        return {"released": not is_installed(host) or is_released(host), "holders": holders}
    return _verify_module(host, call.expect or {}) if call.verb == "verify" else {"offered": 0}


def _verify_module(host: Host, expect: Result) -> Result:
    expected, found = expect.get("driverVersion"), loaded_version(host, "nvidia")
    message = "" if found == expected else f"the loaded kernel module is {found or 'none'}"
    check = {"name": "module-version", "expected": expected, "found": found, "ok": not message, "message": message}
    return {"ok": not message, "checks": [check]}


def failed_checks(result: Result) -> list[str]:
    """Return a line for each check that failed."""
    checks = [check for check in result.get("checks", []) if not check.get("ok")]
    return [f"{check.get('name')}: {check.get('message') or _difference(check)}" for check in checks]


def _difference(check: Result) -> str:
    return f"expected {check.get('expected')}, found {check.get('found')}"
