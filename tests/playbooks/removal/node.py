"""A node that grapnel has set up, and its removal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import Service, apply_changes
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText, find_changes
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock
from ansible_collections.grapnel.node.plugins.module_utils.removal.carry_out import carry_out
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import PARTS
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import find_removal

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.playbooks.fakes import Machine

ALL = frozenset(PARTS)
UNIT, DAEMON = "podman.service", "grapnel-node.service"
HOOKS, NODE_JSON = "/etc/oci/99-hook.json", "/etc/grapnel/node.json"
CONFFILES = """ /etc/docker.conf 0cc175b9c0f1b6a831c399e269772661
 /etc/default/docker 0cc175b9c0f1b6a831c399e269772661
"""
TIMER = "/etc/systemd/system/grapnel-drift.timer"
DAEMON_UNIT = f"/etc/systemd/system/{DAEMON}"


def tree(root: Path) -> dict[str, str]:
    return {str(path): path.read_text() if path.is_file() else "" for path in sorted(root.rglob("*"))}


def write(machine: Machine, files: dict[str, str], unit: str = UNIT, engine: str = "podman") -> None:
    changes = find_changes(machine.host, [FileText(path, text, 0o644) for path, text in files.items()])
    apply_changes(machine.host, Service(unit, engine, True, bool(unit), 1.0), changes)


def set_up(machine: Machine) -> None:
    """Bring a node to what an apply leaves."""
    write(machine, {HOOKS: "ours\n", "/etc/main.conf": "theirs\nours\n"})
    write(machine, {NODE_JSON: "{}\n", DAEMON_UNIT: "[Unit]\n", TIMER: "[Timer]\n"}, unit="", engine="")
    machine.write("/var/lib/grapnel/drift/result.json", "{}\n")
    machine.write("/etc/grapnel/hook.json", "{}\n")
    for part in ("hook", "node"):
        machine.write(f"/usr/lib/grapnel/releases/{part}-0123/RELEASE", "0123\n")
        (machine.root / f"usr/lib/grapnel/{part}").symlink_to(f"releases/{part}-0123")
    machine.write("/var/lib/grapnel/node/health.json", "{}\n")
    machine.write("/run/grapnel/inventory.json", "{}\n")


def remove(machine: Machine, parts: Iterable[str] = ALL, clock: Clock | None = None) -> None:
    wanted = frozenset(parts)
    carry_out(machine.host, find_removal(machine.host, wanted), wanted, clock or Clock())


def teach_packages(machine: Machine, *, also: str = "", kubelet: str = "not-found") -> None:
    machine.teach("systemctl show --property LoadState --value kubelet.service", f"{kubelet}\n")
    machine.teach("dpkg-query --show", "installed")
    machine.teach("dpkg-query --show --showformat ${Conffiles}", CONFFILES)
    machine.teach("apt-get --simulate purge", f"Purg docker.io [26]\nPurg runc:amd64 [1.1]\n{also}")
    machine.teach("env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 apt-get")
