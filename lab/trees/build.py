"""Builds base trees with mmdebstrap, all or nothing: in a temporary folder, which is then renamed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from lab.machine.command import CONTAINED, run
from lab.machine.folders import cache_dir, content_key
from lab.machine.lock import locked
from lab.machine.mirrors import carried_options, find_mirrors
from lab.machine.requirements import require_machine
from lab.trees.suites import find_suite

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "openssh-server", "python3", "python3-apt",
    "sudo", "iproute2", "ca-certificates", "kmod", "procps",
)  # fmt: skip
BUILD_TIMEOUT_S = 900.0
# Run by mmdebstrap in the finished tree. Timers and consoles only cost time; waiting for networkd would delay the
# boot because a tree has no udev; the machine id is created by the node.
MASKED = (
    "apt-daily.timer apt-daily-upgrade.timer getty@.service console-getty.service systemd-networkd-wait-online.service"
)
LEFT_BEHIND = (
    "/etc/ssh/ssh_host_*", "/etc/apt/sources.list", "/etc/apt/sources.list.d/*", "/etc/apt/apt.conf.d/99mmdebstrap",
    "/var/lib/apt/lists/*", "/etc/resolv.conf", "/etc/hostname",
)  # fmt: skip
FINISH = (
    'chroot "$1" systemctl --quiet enable systemd-networkd ssh',
    f'chroot "$1" systemctl --quiet mask {MASKED}',
    f'cd "$1" && rm -rf {" ".join(f".{path}" for path in LEFT_BEHIND)}',
    ': > "$1"/etc/machine-id',
)


def ensure(suite: str) -> Path:
    """Return the base tree of ``suite``, building it if it is not in the cache (half a minute and 230 MB)."""
    find_suite(suite)
    home = cache_dir() / "trees"
    tree = home / f"{suite}-{content_key(suite, *PACKAGES, *FINISH)}"
    if tree.is_dir():
        return tree
    require_machine()
    with locked(home / f"{suite}.lock", wait_s=BUILD_TIMEOUT_S):
        if not tree.is_dir():
            _build(suite, tree)
    return tree


def _build(suite: str, tree: Path) -> None:
    partial = tree.with_name(f".{tree.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    arguments = ["--variant=minbase", "--mode=root", "--format=directory", f"--include={','.join(PACKAGES)}"]
    arguments += [f"--aptopt={option}" for option in carried_options()]
    arguments += [f"--customize-hook={hook}" for hook in FINISH]
    sources = find_mirrors().source_lines(suite)
    run([*CONTAINED, "mmdebstrap", *arguments, suite, str(partial), *sources], timeout_s=BUILD_TIMEOUT_S)
    partial.rename(tree)
