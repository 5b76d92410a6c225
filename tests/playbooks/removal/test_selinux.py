"""SELinux's policy has nothing of grapnel's after a removal, or that is said."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished
from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import MODULE_PATH
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    Packages,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import RemovalError
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import document, find_removal

from tests.playbooks.removal.node import (
    ALL,
    remove,
    set_up,
    teach_packages,
    tree,
    write,
)

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine, Systemd


@pytest.mark.parametrize("kills", range(1, 4))
def test_selinux_has_nothing_of_grapnels_afterwards(machine: Machine, engine: Systemd, kills: int) -> None:
    """Whenever the removal is killed, the next one finds the module that the policy still has."""
    modules = machine.root / "var/lib/selinux/targeted/active/modules/400"
    modules.mkdir(parents=True)
    machine.write("/usr/sbin/semodule", mode=0o755)
    before = tree(machine.root)
    set_up(machine)
    assert engine.active == "active"
    write(machine, {MODULE_PATH: "(type grapnel_gpu_device_t)\n"})
    (modules / "grapnel").mkdir()
    killed = iter(range(kills))

    def semodule() -> Finished:
        if next(killed, None) is not None:
            return Finished(1, stderr="killed\n")
        (modules / "grapnel").rmdir()
        return Finished(0)

    machine.teach("semodule --remove grapnel", semodule)
    told = document(find_removal(machine.host, ALL))["steps"]
    assert ("hook", "remove", "SELinux module grapnel") in [(one["part"], one["action"], one["target"]) for one in told]
    for _ in range(kills):
        with pytest.raises(RemovalError, match="semodule --remove grapnel failed"):
            remove(machine)
    remove(machine)

    assert tree(machine.root) == before
    assert find_removal(machine.host, ALL).steps == ()


@pytest.fixture
def policy(machine: Machine, engine: Systemd) -> Machine:
    """A node with grapnel's module in its policy, and the tool that takes it out."""
    set_up(machine)
    assert engine.active == "active"
    machine.write("/usr/sbin/semodule", mode=0o755)
    machine.write("/var/lib/selinux/targeted/active/modules/400/grapnel/cil")
    return machine


def test_the_policy_is_left_before_the_tools_go_that_came_with_an_engine(policy: Machine) -> None:
    """container-selinux brings policycoreutils, and goes with the engine that it came with."""
    teach_packages(policy)
    remember_packages(policy.host, "docker", Packages(("docker.io", "runc")))
    policy.teach("semodule --remove grapnel")

    remove(policy)

    purged = next(at for at, call in enumerate(policy.calls) if call.startswith("env DEBIAN_FRONTEND"))
    assert policy.calls.index("semodule --remove grapnel") < purged


def test_a_policy_that_nothing_can_change_any_more_keeps_its_module_and_that_is_said(policy: Machine) -> None:
    """SELinux was switched off and its tools were removed: no second removal would do better."""
    (policy.root / "usr/sbin/semodule").unlink()

    removal = find_removal(policy.host, ALL)
    remove(policy)

    assert "no semodule" in " ".join(removal.notes)
    assert not any(call.startswith("semodule") for call in policy.calls)
    assert not (policy.root / "usr/lib/grapnel").exists()


def test_the_policy_keeps_its_module_while_the_hook_stays(machine: Machine, engine: Systemd) -> None:
    set_up(machine)
    assert engine.active == "active"
    write(machine, {MODULE_PATH: "(type grapnel_gpu_device_t)\n"})
    machine.write("/var/lib/selinux/targeted/active/modules/400/grapnel/cil")
    targets = [one["target"] for one in document(find_removal(machine.host, ALL - {"hook"}))["steps"]]
    assert MODULE_PATH not in targets
    assert "SELinux module grapnel" not in targets
