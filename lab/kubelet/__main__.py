"""`python3 -m lab.kubelet`: show what a plugin registers, or allocate once as a kubelet would."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

from google.protobuf.json_format import MessageToDict

from lab.kubelet.device_manager import AllocationRefused
from lab.kubelet.manager import Kubelet


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab.kubelet", description=__doc__)
    parser.add_argument("--root", type=Path, required=True, help="the kubelet's root, e.g. /var/lib/kubelet")
    parser.add_argument("--resource", default="nvidia.com/gpu")
    parser.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("watch", help="print every device list until interrupted")
    allocate = verbs.add_parser("allocate", help="wait for a plugin, allocate once, print the answer")
    allocate.add_argument("count", type=int)
    return parser


def _is_alive(path: Path) -> bool:
    """Whether somebody serves this socket: a real kubelet's plugins must not lose theirs."""
    if not path.parent.is_dir():
        return False
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(f"/proc/self/fd/{folder}/{path.name}")  # the path itself may pass the limit of 107 bytes
    except OSError:
        return False
    finally:
        os.close(folder)
    return True


def _watch(kubelet: Kubelet, resource: str) -> int:
    stopped: list[int] = []  # not an Event: setting one while this thread is about to wait for it has no end
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _frame: stopped.append(received))
    shown = None
    while not stopped:
        time.sleep(0.1)
        known = kubelet.registry.get(resource)
        state = None if known is None else (known.is_watched, tuple(known.devices.values()))
        if state != shown and known is not None:
            print(
                json.dumps({"resource": resource, "watched": known.is_watched, "healthy": known.healthy()}),
                flush=True,
            )
        shown = state
    return 0


def _allocate(kubelet: Kubelet, resource: str, count: int, timeout_s: float) -> int:
    kubelet.registry.wait_for(lambda: len(kubelet.healthy(resource)) >= count, timeout_s)
    try:
        assignment = kubelet.allocate(resource, count, "demo")
    except AllocationRefused as error:
        print(f"refused: {error}", file=sys.stderr)
        return 1
    print(json.dumps(MessageToDict(assignment.response), indent=2, sort_keys=True))
    return 0


def main() -> int:
    """Run one verb against plugins below the root."""
    arguments = _parser().parse_args()
    path = arguments.root / "device-plugins" / "kubelet.sock"
    if _is_alive(path):
        print(f"{path}: a kubelet is running here", file=sys.stderr)
        return 1
    with Kubelet(arguments.root) as kubelet:
        if arguments.verb == "watch":
            return _watch(kubelet, arguments.resource)
        return _allocate(kubelet, arguments.resource, arguments.count, arguments.timeout)


if __name__ == "__main__":
    sys.exit(main())
