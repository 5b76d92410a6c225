"""Units of a node that a removal is tried on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.removal.own import UNITS

from tests.playbooks.fakes import Systemd
from tests.playbooks.removal.node import UNIT

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine


@pytest.fixture
def engine(machine: Machine) -> Systemd:
    for path in ("/etc/systemd/system", "/usr/lib", "/var/lib", "/run"):
        (machine.root / path.lstrip("/")).mkdir(parents=True, exist_ok=True)
    for unit in (*UNITS["daemon"], *UNITS["hook"]):
        Systemd(machine, unit, active="inactive", enabled="")
        machine.teach(f"systemctl disable --now {unit}")
    machine.teach("systemctl show --property LoadState --value kubelet.service", "not-found\n")
    return Systemd(machine, UNIT, active="active", enabled="enabled")
