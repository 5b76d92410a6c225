"""The driver's own services, and what else is restarted with the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.kernel.services import (
    running_own_services,
    running_services,
    still_there,
)

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

SHOW = "systemctl show --property LoadState --value"


def test_a_unit_that_went_with_its_package_is_not_started_again(machine: Machine) -> None:
    machine.teach(f"{SHOW} nvidia-persistenced.service", "not-found\n")
    machine.teach(f"{SHOW} nvidia-dcgm.service", "loaded\n")

    assert still_there(machine.host, ["nvidia-persistenced.service", "nvidia-dcgm.service"]) == ["nvidia-dcgm.service"]


def test_a_slurmd_is_restarted_with_the_driver_and_is_none_of_its_own(machine: Machine) -> None:
    """It counts GPUs when it starts; jobs may be in its control group, and a GPU that they hold is in use."""
    own = "Id=nvidia-persistenced.service\nActiveState=active\n"
    machine.teach("systemctl show --property Id,ActiveState", f"{own}\nId=slurmd.service\nActiveState=active\n")
    assert running_services(machine.host) == ["nvidia-persistenced.service", "slurmd.service"]
    (asked,) = machine.calls
    assert "slurmd.service" in asked

    running_own_services(machine.host)
    assert "slurmd.service" not in machine.calls[-1]
