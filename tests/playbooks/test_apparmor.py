"""AppArmor on a node: whether the kernel has it on, and what it refused of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import read_apparmor

from tests.playbooks.fakes import Machine

if TYPE_CHECKING:
    from pathlib import Path

ENABLED = "/sys/module/apparmor/parameters/enabled"
LOG = "/var/log/audit/audit.log"
DENIED = (
    'apparmor="DENIED" operation="open" class="file" profile="narrow" name="/dev/nvidia0" pid=140 comm="sh" '
    'requested_mask="r" denied_mask="r" fsuid=0 ouid=0'
)
SIGNAL = 'apparmor="DENIED" operation="signal" profile="grapnel-x" pid=1 denied_mask="receive"'
MOUNT = 'apparmor="DENIED" operation="mount" profile="p" name="/proc/driver/nvidia/" comm="x"'
TOLD = "narrow open /dev/nvidia0 (r)"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.write(ENABLED, "Y\n")
    return machine


@pytest.mark.parametrize("enabled", [None, "N\n"], ids=["not in the kernel", "switched off"])
def test_a_machine_without_it_tells_that_and_reads_no_log(tmp_path: Path, enabled: str | None) -> None:
    machine = Machine(tmp_path)
    machine.write(LOG, DENIED)
    if enabled is not None:
        machine.write(ENABLED, enabled)
    assert read_apparmor(machine.host) == {"mode": "disabled"}
    assert machine.calls == []


def test_denials_about_gpus_are_told_each_once(machine: Machine) -> None:
    lines = [f"type=AVC msg=audit(1.{count}:7): {DENIED}" for count in range(3)]
    lines.append(DENIED.replace("/dev/nvidia0", "/etc/shadow"))
    lines.append(DENIED.replace("DENIED", "ALLOWED").replace("nvidia0", "nvidia1"))
    machine.write(LOG, "\n".join(lines))
    assert read_apparmor(machine.host) == {"mode": "enabled", "denials": [TOLD]}
    assert machine.calls == []


def test_without_an_audit_log_the_kernels_is_read(machine: Machine) -> None:
    machine.teach("journalctl --dmesg", f"audit: type=1400 audit(1796061269.084:7): {DENIED}\n")
    assert read_apparmor(machine.host)["denials"] == [TOLD]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (SIGNAL, "grapnel-x signal ? (receive)"),
        (MOUNT, "p mount /proc/driver/nvidia/"),
        (DENIED.replace("nvidia0", "nvidia\x1b[2J"), "narrow open /dev/nvidia\\x1b[2J (r)"),
    ],
    ids=["no file", "no mask", "a terminal's commands"],
)
def test_what_a_line_says_is_told(machine: Machine, line: str, told: str) -> None:
    machine.write(LOG, line)
    assert read_apparmor(machine.host)["denials"] == [told]
