"""Is the first process of a Slurm machine: ``supervise.py CONFIG``, in its own mount, PID and network namespaces.

Lays Slurm over the tree, makes that its root, writes the configuration, and reaps what ends. Daemons are started from
outside, with nsenter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

ADDRESS = "192.0.2.1"  # of the network namespace alone; names only resolve where there is more than loopback
DEVICES = {"null": (1, 3), "zero": (1, 5), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
FOLDERS = (
    "dev/shm", "etc/munge", "etc/slurm", "run/lab", "run/munge", "var/lib/munge", "var/log/munge", "var/log/slurm",
    "var/spool/slurmctld", "var/spool/slurmd",
)  # fmt: skip
READY = "run/lab/ready"


def main(config_path: str) -> int:
    """Mount, write, change the root, and wait for orphans for ever."""
    config = json.loads(Path(config_path).read_text())
    root = Path(config["folder"], "root")
    _mount_tree(config, root)
    _write_files(config, root)
    for command in (["link", "set", "lo", "up"], ["address", "add", f"{ADDRESS}/32", "dev", "lo"]):
        subprocess.run(["ip", *command], check=True)
    os.chroot(root)
    os.chdir("/")
    Path("/", READY).touch()
    while True:
        try:
            os.wait()
        except ChildProcessError:
            time.sleep(0.2)  # nobody to wait for now


def _mount_tree(config: dict[str, str], root: Path) -> None:
    memory = Path(config["folder"], "memory")
    root.mkdir()
    memory.mkdir()
    _mount("-t", "tmpfs", "tmpfs", str(memory))
    for name in ("upper", "work"):
        (memory / name).mkdir()
    (memory / "upper").chmod(0o755)
    lower = f"lowerdir={config['slurm']}:{config['tree']}"
    _mount("-t", "overlay", "slurm", "-o", f"{lower},upperdir={memory}/upper,workdir={memory}/work", str(root))
    _mount("-t", "proc", "proc", str(root / "proc"))
    for name in ("run", "dev", "tmp"):
        _mount("-t", "tmpfs", "-o", "mode=1777" if name == "tmp" else "mode=755", "tmpfs", str(root / name))


def _write_files(config: dict[str, str], root: Path) -> None:
    for name in FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name, (major, minor) in DEVICES.items():
        os.mknod(root / "dev" / name, 0o20666, os.makedev(major, minor))
        (root / "dev" / name).chmod(0o666)
    key = root / "etc/munge/munge.key"
    key.write_bytes(os.urandom(128))
    key.chmod(0o400)
    for place, text in json.loads(config["files"]).items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for file, line in (("passwd", "alice:x:1000:1000::/tmp:/bin/sh\n"), ("group", "alice:x:1000:\n")):
        with (root / "etc" / file).open("a") as stream:
            stream.write(line)


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
