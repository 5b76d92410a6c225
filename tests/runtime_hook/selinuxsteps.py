"""Runs in the virtual machine that enforces SELinux: what `apply` and `remove` do to its policy, by the node's modules.

Prints `STEP {...}` after each: what the collection then tells of this machine.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, "/collection")

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import (
    install_module,
    read_selinux,
    remove_module,
    restore_labels,
)

ENFORCE = Path("/sys/fs/selinux/enforce")
HOST = Host()


def make_node(name: str) -> None:
    """Make a node as a program does that knows no labels."""
    os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(4, 16))
    subprocess.run(["chcon", "-t", "device_t", f"/dev/{name}"], check=True)


def tell(name: str) -> None:
    listed = subprocess.run(["semodule", "-l"], capture_output=True, text=True, check=True).stdout.split()
    step = {"name": name, "facts": read_selinux(HOST), "is_listed": "grapnel" in listed}
    sys.stdout.write(f"STEP {json.dumps(step)}\n")
    sys.stdout.flush()


def main() -> None:
    make_node("nvidia0")
    tell("before")
    install_module(HOST)
    restore_labels(HOST)
    tell("applied")
    ENFORCE.write_text("0")
    make_node("nvidia1")
    ENFORCE.write_text("1")
    tell("was permissive")
    restore_labels(HOST)
    tell("applied again")
    remove_module(HOST)
    tell("removed")


main()
