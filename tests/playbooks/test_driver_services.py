"""The driver's own services: which of them can be started again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver_services import still_there

if TYPE_CHECKING:
    from tests.playbooks.fakes import Machine

SHOW = "systemctl show --property LoadState --value"


def test_a_unit_that_went_with_its_package_is_not_started_again(machine: Machine) -> None:
    machine.teach(f"{SHOW} nvidia-persistenced.service", "not-found\n")
    machine.teach(f"{SHOW} nvidia-dcgm.service", "loaded\n")

    assert still_there(machine.host, ["nvidia-persistenced.service", "nvidia-dcgm.service"]) == ["nvidia-dcgm.service"]
