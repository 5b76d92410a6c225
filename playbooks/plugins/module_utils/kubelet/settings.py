"""Changes the kubelet's settings and makes sure that it works with them, or leaves everything as it was.

Order: rehearse → note where it reads its settings → mark the restart → stop it → take away what it keeps of CPUs and
memory → swap the files in → start it → wait until it works and stays → clear mark and note. A run that is killed in
between leaves the mark, and the note, from which the next one goes on. The state is taken away only while the kubelet
is stopped, and before it can read other settings: a kubelet refuses to start with what another policy has left.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable

from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileSetError, swap_back, swap_in
from ansible_collections.grapnel.node.plugins.module_utils.kubelet.place import (
    forget_place,
    note_place,
    read_place,
    unit_state,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import (
    clear_restart,
    forget_starts,
    is_restart_due,
    mark_restart,
)

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileDifference
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

STATE_FILES = ("cpu_manager_state", "memory_manager_state")
_SYSTEMCTL_TIMEOUT_S = 180.0
_HEALTH_TIMEOUT_S = 5.0
_POLL_S = 0.5
_OK = 200

Health = Callable[[str], str]


class KubeletError(Exception):
    """The kubelet does not have the settings; the message says why, and what became of it."""


@dataclass(frozen=True)
class Kubelet:
    """The kubelet's service. ``health`` is where it says whether it works, empty where it does not.

    It has to work within ``timeout_s``, and for ``settle_s`` from then on: what it refuses it may notice late.
    """

    unit: str
    root_dir: str
    health: str
    timeout_s: float
    settle_s: float


@dataclass(frozen=True)
class Waiting:
    """Time and the kubelet's answer, for what waits until it works."""

    sleep: Callable[[float], None] = time.sleep
    ask: Health | None = None

    def silence(self, address: str) -> str:
        """Return why the kubelet does not say that it works, empty where it does."""
        return (self.ask or ask_health)(address)


def pending_steps(host: Host, kubelet: Kubelet, *, restart: bool) -> list[str]:
    """Return what has to be done to the service, apart from what changed files need."""
    active = unit_state(host, kubelet.unit).get("ActiveState", "")
    if active not in ("active", "activating", "reloading"):
        return ["start"]
    return ["restart"] if restart or is_restart_due(host, kubelet.unit) else []


def apply_settings(host: Host, kubelet: Kubelet, changes: list[FileDifference], waiting: Waiting) -> list[str]:
    """Swap the files in and start the kubelet with them; raises `KubeletError` after everything was put back.

    Returns the files of the kubelet's state that were taken away.
    """
    place = read_place(host, unit_state(host, kubelet.unit).get("MainPID", ""))
    note_place(host, place)
    mark_restart(host, kubelet.unit)
    removed = _stop(host, kubelet)
    try:
        swap_in(host, changes)
    except FileSetError as error:
        raise KubeletError(_after_failed_swap(host, kubelet, waiting, error)) from error
    failure = _start(host, kubelet, waiting)
    if failure:
        raise KubeletError(_put_back(host, kubelet, changes, failure, waiting))
    _settle(host, kubelet)
    return removed


def _stop(host: Host, kubelet: Kubelet) -> list[str]:
    """Stop the kubelet and take its state away; containers go on meanwhile."""
    done = host.run(["systemctl", "stop", kubelet.unit], _SYSTEMCTL_TIMEOUT_S)
    active = unit_state(host, kubelet.unit).get("ActiveState", "")
    if done.return_code or active not in ("inactive", "failed"):
        raise KubeletError(f"{kubelet.unit} could not be stopped ({done.complaint}), so nothing was changed")
    present = [f"{kubelet.root_dir}/{name}" for name in STATE_FILES]
    present = [path for path in present if host.path(path).is_file()]
    for path in present:
        host.path(path).unlink()
    return present


def _start(host: Host, kubelet: Kubelet, waiting: Waiting) -> str:
    """Return why the kubelet does not work, empty where it does, and goes on."""
    forget_starts(host, kubelet.unit)
    done = host.run(["systemctl", "start", kubelet.unit], _SYSTEMCTL_TIMEOUT_S)
    if done.return_code:
        return f"systemctl start {kubelet.unit} failed: {done.complaint}"
    return _wait(host, kubelet, waiting)


def _wait(host: Host, kubelet: Kubelet, waiting: Waiting) -> str:
    """Wait until one process of the kubelet has worked for ``settle_s`` on end."""
    needed = max(1, int(kubelet.settle_s / _POLL_S))
    good, bad, process, silence = 0, 0, "", ""
    for _ in range(int(kubelet.timeout_s / _POLL_S) + needed):
        state = unit_state(host, kubelet.unit)
        active, pid = state.get("ActiveState", ""), state.get("MainPID", "")
        silence = waiting.silence(kubelet.health) if active == "active" else f"{kubelet.unit} is {active or 'unknown'}"
        good = good + 1 if not silence and pid == process else 0
        bad = bad + 1 if active == "failed" else 0  # systemd has given up starting it again
        process = pid
        if good >= needed:
            return ""
        if bad >= needed:
            break
        waiting.sleep(_POLL_S)
    return f"the kubelet does not stay up: {silence or 'its process changes'}{_last_words(host, kubelet)}"


def _last_words(host: Host, kubelet: Kubelet) -> str:
    """Return the last error in the kubelet's log, for a message."""
    done = host.run(
        ["journalctl", "--unit", kubelet.unit, "--lines", "40", "--output", "cat", "--no-pager"], _SYSTEMCTL_TIMEOUT_S
    )
    errors = [line for line in done.stdout.splitlines() if "err=" in line or line.startswith(("E", "F"))]
    return f" (its log: {errors[-1].strip()[:400]})" if errors else f"; see journalctl -u {kubelet.unit}"


def ask_health(address: str, patience_s: float = _HEALTH_TIMEOUT_S) -> str:
    """Ask the kubelet whether it works; returns what it says against it. Without an address it is not asked.

    Any process may have its port while it is stopped, so an answer ends in time even where it comes byte by byte.
    """
    if not address:
        return ""
    connection = http.client.HTTPConnection(address, timeout=patience_s)
    late = threading.Event()
    try:
        connection.connect()
        timer = threading.Timer(patience_s, _hang_up, (connection.sock, late))
        timer.start()
        try:
            connection.request("GET", "/healthz")
            status = connection.getresponse().status
        finally:
            timer.cancel()
            timer.join()
    except (OSError, http.client.HTTPException) as error:
        return f"http://{address}/healthz does not answer: {'timed out' if late.is_set() else error}"
    finally:
        connection.close()
    if late.is_set():  # what had come by then passes for an answer
        return f"http://{address}/healthz does not answer: timed out"
    return "" if status == _OK else f"http://{address}/healthz answers {status}"


def _hang_up(sock: socket.socket, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):  # it has ended already
        sock.shutdown(socket.SHUT_RDWR)


def _after_failed_swap(host: Host, kubelet: Kubelet, waiting: Waiting, error: FileSetError) -> str:
    again = _start(host, kubelet, waiting)
    if again:
        return f"{error}; {again}"
    if error.is_undone:
        _settle(host, kubelet)
    return f"{error}; {kubelet.unit} works as before"


def _put_back(host: Host, kubelet: Kubelet, changes: list[FileDifference], failure: str, waiting: Waiting) -> str:
    """Restore the former files and start the kubelet with them; returns the message."""
    if not changes:
        return failure
    try:
        _stop(host, kubelet)
        swap_back(host, changes)
    except (KubeletError, FileSetError) as error:
        return f"{failure}; the new settings stay in place, because {error}"
    again = _start(host, kubelet, waiting)
    if again:
        return f"{failure}; the former settings were put back, but {again}"
    _settle(host, kubelet)
    return f"{failure}; the former settings were put back, and {kubelet.unit} works with them"


def _settle(host: Host, kubelet: Kubelet) -> None:
    clear_restart(host, kubelet.unit)
    forget_place(host)
