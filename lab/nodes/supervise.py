"""Keeps one node running: ``supervise.py CONFIG``, started as a script in its own mount namespace.

It joins the node's cgroups, mounts the node's overlay (which vanishes with this process, so that nothing is left on
the machine), and restarts systemd-nspawn each time the node reboots. Its output is the node's console log.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

REBOOT = 133  # what systemd-nspawn --keep-unit exits with when the node asks for a reboot
REMOVE_S = 2.0
POLL_S = 0.02
RUN = Path("/run/systemd/nspawn")


def main(config_path: str) -> int:
    """Run the node until it powers off; return nspawn's exit status."""
    config = json.loads(Path(config_path).read_text())
    # A killed command may have left a supervisor that is not in the groups yet: only one may mount and boot.
    lock = os.open(f"{config_path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("-- another supervisor runs this node --", flush=True)
        return 0
    for group in config["groups"]:
        Path(group, "cgroup.procs").write_text(str(os.getpid()))
    # If /run is on a disk, nspawn refuses to clear its state there at a reboot.
    RUN.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(RUN)], check=True)
    subprocess.run(config["mount"], check=True)
    boot = 0
    while True:
        boot += 1
        print(f"-- boot {boot} of this start --", flush=True)
        # After a reboot the old interface may still be there.
        subprocess.run(["ip", "link", "del", config["interface"]], check=False, stderr=subprocess.DEVNULL)
        _remove_groups_below(config["groups"])
        code = subprocess.run(config["nspawn"], check=False, env={**os.environ, **config["env"]}).returncode
        if code != REBOOT:
            print(f"-- systemd-nspawn ended with status {code} --", flush=True)
            return code


def _remove_groups_below(groups: list[str]) -> None:
    """Remove the cgroups of an earlier boot, as a kubelet searches three seconds for the container of each.

    A group stays busy for a moment after its last process; one that stays busy is left to the removal of the node.
    """
    deadline = time.monotonic() + REMOVE_S
    below = [path for group in groups for path, _, _ in os.walk(group, topdown=False) if path != group]
    while below and time.monotonic() < deadline:
        below = [path for path in below if not _is_removed(path)]
        if below:
            time.sleep(POLL_S)


def _is_removed(group: str) -> bool:
    try:
        Path(group).rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
