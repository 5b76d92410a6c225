"""A small grapnel to build from, and an installer that needs no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

LAUNCHER = """\
#!/usr/bin/python3 -IS
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
from {package}.cli import main

main()
"""

UNITS = (
    "grapnel-node.service",
    "grapnel-inventory.path",
    "grapnel-inventory.service",
    "grapnel-drift.service",
    "grapnel-drift.timer",
)
PROGRAM = "ansible_collections.grapnel.node.plugins.module_utils.driver.program"

# What an installer does, small: it notes its arguments and fills the folder after --target.
INSTALLER = """\
#!/bin/sh
echo "$@" >> "$0.calls"
if [ -e "$0.broken" ]; then
    echo "resolving" ; echo "no wheel for this platform" >&2 ; exit 3
fi
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/grpc" && echo library > "$2/grpc/__init__.py"
"""


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_checkout(root: Path) -> Path:
    """Make a small grapnel: two packages with their launchers, requirements, units."""
    for package in ("runtime_hook", "plugin"):
        write(root / package / "__init__.py")
        write(root / package / "launcher.py", LAUNCHER.format(package=package))
        write(root / package / "cli.py", f"def main() -> None:\n    print('this is {package}')\n")
        write(root / package / "notes.txt", "stays here")
        write(root / package / "__pycache__" / "cli.cpython-311.py", "stays here")
    write(root / "runtime_hook" / "wrapper_launcher.sh", "#!/bin/sh\n")
    write(root / "plugin" / "kubelet" / "__init__.py")
    write(root / "requirements" / "node.txt", "grpcio==1\n")
    for unit in UNITS:
        write(root / "deploy" / "systemd" / unit, "[Service]\n")
    utilities = root / "playbooks" / "plugins" / "module_utils"
    write(utilities / "host.py")
    write(utilities / "driver" / "program.py", "def main() -> None:\n    print('this is the driver')\n")
    write(utilities / "driver" / "launcher.py", LAUNCHER.format(package=PROGRAM).replace(".cli", ""))
    return root


def make_installer(folder: Path, name: str = "uv") -> Path:
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(INSTALLER)
    path.chmod(0o755)
    return path
