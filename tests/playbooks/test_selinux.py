"""SELinux on a node: how it stands, which text of our module the policy has, and what is labelled."""

from __future__ import annotations

import bz2
import hashlib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import (
    MODULE_PATH,
    SelinuxError,
    has_module,
    install_module,
    read_selinux,
    remove_module,
    restore_labels,
)
from ansible_collections.grapnel.node.plugins.modules.selinux import bring

from provision.planning.render import selinux as rendered
from tests.playbooks.fakes import Machine

if TYPE_CHECKING:
    from pathlib import Path

TEXT = rendered.render_module()
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
STORED = "/var/lib/selinux/targeted/active/modules/400/grapnel/cil"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.write("/sys/fs/selinux/enforce", "1")
    machine.write("/etc/selinux/config", "# comment\nSELINUX=enforcing\nSELINUXTYPE=targeted\n")
    for tool in ("semodule", "restorecon"):
        machine.write(f"/usr/sbin/{tool}", mode=0o755)
    machine.write("/dev/nvidia0")
    machine.write("/dev/null")
    machine.teach("journalctl --dmesg")
    return machine


def store(machine: Machine, content: bytes) -> None:
    machine.write(STORED)
    (machine.root / STORED.lstrip("/")).write_bytes(content)


def test_the_planner_and_the_node_mean_the_same_file(machine: Machine) -> None:
    assert rendered.MODULE_PATH == MODULE_PATH
    assert MODULE_PATH.endswith(f"/{rendered.MODULE}.cil")
    assert "nodes" in read_selinux(machine.host)


def test_a_machine_without_it_tells_that_it_is_off(tmp_path: Path) -> None:
    assert read_selinux(Machine(tmp_path).host) == {"mode": "disabled"}


@pytest.mark.parametrize(("enforce", "mode"), [("1", "enforcing"), ("0", "permissive")])
def test_the_mode_is_the_running_kernels(machine: Machine, enforce: str, mode: str) -> None:
    machine.write("/sys/fs/selinux/enforce", enforce)
    assert read_selinux(machine.host) == {
        "mode": mode,
        "policy": "targeted",
        "tools": True,
        "module": None,
        "nodes": {"/dev/nvidia0": ""},
        "denials": [],
    }


@pytest.mark.parametrize("kept", [TEXT.encode(), bz2.compress(TEXT.encode())], ids=["plain", "compressed"])
def test_the_policys_copy_of_the_module_is_told_by_its_text(machine: Machine, kept: bytes) -> None:
    store(machine, kept)
    assert read_selinux(machine.host)["module"] == DIGEST


def test_a_machine_that_names_no_policy_has_the_usual_one(machine: Machine) -> None:
    machine.write("/etc/selinux/config", "SELINUX=enforcing\n")
    store(machine, TEXT.encode())
    assert read_selinux(machine.host)["module"] == DIGEST


@pytest.mark.parametrize("kept", [b"BZh9 damaged", bz2.compress(TEXT.encode())[:-20]], ids=["damaged", "cut short"])
def test_a_damaged_copy_is_no_text_of_ours(machine: Machine, kept: bytes) -> None:
    store(machine, kept)
    assert read_selinux(machine.host)["module"] != DIGEST


def test_a_machine_without_the_tools_says_so(machine: Machine) -> None:
    (machine.root / "usr/sbin/semodule").unlink()
    assert read_selinux(machine.host)["tools"] is False


def test_the_module_is_installed_once_and_labels_are_restored_each_time(machine: Machine) -> None:
    machine.write(MODULE_PATH, TEXT)
    machine.teach("semodule --install")
    machine.teach("restorecon -R -F")
    assert bring(machine.host, DIGEST)
    store(machine, bz2.compress(TEXT.encode()))
    assert not bring(machine.host, DIGEST)
    assert [call for call in machine.calls if not call.startswith("journalctl")] == [
        f"semodule --install {MODULE_PATH}",
        "restorecon -R -F /etc/grapnel /dev/nvidia0",
        "restorecon -R -F /etc/grapnel /dev/nvidia0",
    ]


def test_in_check_mode_nothing_is_done(machine: Machine) -> None:
    assert bring(machine.host, DIGEST, is_check=True)
    assert not any(call.startswith(("semodule", "restorecon")) for call in machine.calls)


def test_another_text_than_the_planned_one_is_refused(machine: Machine) -> None:
    machine.write(MODULE_PATH, "(allow domain domain (file (write)))")
    with pytest.raises(SelinuxError, match="somebody has changed it"):
        bring(machine.host, DIGEST)
    assert not any(call.startswith(("semodule", "restorecon")) for call in machine.calls)


def test_what_semodule_says_is_passed_on(machine: Machine) -> None:
    machine.teach("semodule", return_code=1, stderr="Failed to resolve AST\n")
    with pytest.raises(SelinuxError, match=r"semodule --install .* failed: Failed to resolve AST"):
        install_module(machine.host)


def test_nothing_is_labelled_where_selinux_is_off(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("/usr/sbin/restorecon", mode=0o755)
    machine.write(MODULE_PATH, TEXT)
    restore_labels(machine.host)
    assert machine.calls == []


def test_the_module_goes_and_nodes_get_their_former_labels(machine: Machine) -> None:
    assert not has_module(machine.host)
    store(machine, b"")
    assert has_module(machine.host)
    machine.teach("semodule --remove")
    machine.teach("restorecon -R -F")
    remove_module(machine.host)
    assert machine.calls == ["semodule --remove grapnel", "restorecon -R -F /dev/nvidia0"]


def test_the_socket_of_a_daemon_that_stays_has_no_type_that_is_gone(machine: Machine) -> None:
    machine.write("/run/grapnel/node.sock")
    machine.teach("semodule --remove")
    machine.teach("restorecon -R -F")

    remove_module(machine.host)

    assert machine.calls[1:] == ["restorecon -R -F /run/grapnel/node.sock /dev/nvidia0"]


@pytest.mark.parametrize("priority", ["100", "500"])
def test_a_module_of_that_name_from_somebody_else_is_left_alone(machine: Machine, priority: str) -> None:
    """`semodule` has modules of packages at 100, and takes in and out at 400: that one would not go."""
    machine.write(STORED.replace("/400/", f"/{priority}/"), "(type theirs)")
    assert not has_module(machine.host)
    store(machine, TEXT.encode())
    assert has_module(machine.host)


DENIED = (
    'type=AVC msg=audit(1796061269.084:7): avc:  denied  { read write } for  pid=156 comm="python3" '
    'path="/dev/nvidia0" dev="devtmpfs" ino=445 scontext=system_u:system_r:container_t:s0:c1,c2 '
    "tcontext=system_u:object_r:xserver_misc_device_t:s0 tclass=chr_file permissive=0"
)
OTHER = DENIED.replace("/dev/nvidia0", "/dev/sda")
TOLD = "container_t read write /dev/nvidia0 (xserver_misc_device_t, chr_file)"


def test_denials_about_gpus_are_told_each_once(machine: Machine) -> None:
    machine.write("/var/log/audit/audit.log", "\n".join([DENIED, OTHER, DENIED.replace(":7)", ":8)")]))
    assert read_selinux(machine.host)["denials"] == [TOLD]
    assert machine.calls == []


def test_without_an_audit_log_the_kernels_is_read(machine: Machine) -> None:
    machine.teach("journalctl --dmesg", f"audit: type=1400 {DENIED}\n{OTHER}\n")
    assert read_selinux(machine.host)["denials"] == [TOLD]


def test_what_a_user_named_a_file_is_made_printable(machine: Machine) -> None:
    machine.write("/var/log/audit/audit.log", DENIED.replace("/dev/nvidia0", "/x/nvidia\x1b[2J"))
    assert read_selinux(machine.host)["denials"] == [TOLD.replace("/dev/nvidia0", "/x/nvidia\\x1b[2J")]
