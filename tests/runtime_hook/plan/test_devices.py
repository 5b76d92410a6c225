"""Which device nodes are made, which the engine must have made, and what is said of one that is missing."""

from __future__ import annotations

import pytest

from runtime_hook.base.errors import HookError, InventoryError, RequestError
from runtime_hook.container.operations.devices import AddDeviceNode
from runtime_hook.host.inventory import MigDevice
from runtime_hook.inputs.bundle import DeviceNode, DeviceRule
from runtime_hook.plan.devices import check_given, link_drm, plan_devices
from runtime_hook.request.grant import Grant
from tests.runtime_hook.inventories import FULL, MIG, changed

COMMON = ["/dev/nvidiactl"]
COMPUTE = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
FIRST = {"gpus": FULL.gpus[:1]}


def grant(*words: str, **fields: object) -> Grant:
    return Grant(**{"source": "environment", "capabilities": words, "adds_devices": True, **FIRST, **fields})


def made(*words: str, **fields: object) -> list[str]:
    """Return the paths of the nodes that are made, in order."""
    described = [operation.describe() for operation in plan_devices(grant(*words, **fields), FULL, (), str)]
    return [line.split()[3] for line in described if line.startswith("make device node")]


@pytest.mark.parametrize(
    ("words", "fields", "nodes"),
    [
        pytest.param(("utility",), {}, ["/dev/nvidia0", *COMMON], id="utility needs no uvm"),
        pytest.param(("compute",), {}, ["/dev/nvidia0", *COMPUTE, "/dev/nvidia-uvm-tools"], id="compute"),
        pytest.param(
            ("graphics",),
            {},
            ["/dev/nvidia0", *COMMON, "/dev/dri/card0", "/dev/dri/renderD128"],
            id="graphics brings DRI and no modeset",
        ),
        pytest.param(
            ("display",),
            {},
            ["/dev/nvidia0", *COMMON, "/dev/nvidia-modeset", "/dev/dri/card0", "/dev/dri/renderD128"],
            id="display brings modeset",
        ),
        pytest.param(
            ("utility",),
            {"gpus": (), "mig": (MIG,)},
            ["/dev/nvidia1", "/dev/nvidia-caps/nvidia-cap30", "/dev/nvidia-caps/nvidia-cap31", *COMMON],
            id="a MIG device is its parent and two capabilities",
        ),
        pytest.param(
            ("utility",),
            {"extras": ("mig-config", "mig-monitor")},
            ["/dev/nvidia0", *COMMON, "/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia-caps/nvidia-cap2"],
            id="the rights to configure and monitor MIG",
        ),
        pytest.param(
            ("utility",),
            {"extras": ("nvidia-fs", "infiniband")},
            ["/dev/nvidia0", *COMMON, "/dev/nvidia-fs0", "/dev/nvidia-fs1", "/dev/infiniband/uverbs0"],
            id="extras bring all of their kind",
        ),
        pytest.param(
            ("utility",),
            {"imex_channels": (7,)},
            ["/dev/nvidia0", *COMMON, "/dev/nvidia-caps-imex-channels/channel7"],
            id="an IMEX channel",
        ),
    ],
)
def test_the_nodes_follow_from_the_grant(words: tuple[str, ...], fields: dict[str, object], nodes: list[str]) -> None:
    assert made(*words, **fields) == nodes


def test_nodes_of_mig_are_as_open_as_the_drivers_own() -> None:
    """All were made for everybody: any user inside a privileged container could cut the GPUs of the node anew."""
    given = grant("utility", gpus=(), mig=(MIG,), extras=("mig-config", "mig-monitor"))
    made = [each for each in plan_devices(given, FULL, (), str) if isinstance(each, AddDeviceNode)]
    assert {each.path: each.mode for each in made} == {
        "/dev/nvidia1": 0o666,
        "/dev/nvidiactl": 0o666,
        "/dev/nvidia-caps/nvidia-cap1": 0o400,
        "/dev/nvidia-caps/nvidia-cap2": 0o444,
        "/dev/nvidia-caps/nvidia-cap30": 0o444,
        "/dev/nvidia-caps/nvidia-cap31": 0o444,
    }


def test_rules_are_added_where_the_configuration_has_none() -> None:
    rules = (DeviceRule(allow=True, type="c", major=195, minor=-1, access="rw"),)
    described = [operation.describe() for operation in plan_devices(grant("compute"), FULL, rules, str)]
    assert [line for line in described if line.startswith("allow")] == ["allow devices 510:0, 510:1 rw"]


def test_links_by_pci_path_lead_to_the_nodes_that_are_given() -> None:
    described = [operation.describe() for operation in link_drm(grant("graphics"), {(226, 128)})]
    assert described == ["link /dev/dri/by-path/pci-0000:10:00.0-render to ../renderD128"]
    assert link_drm(grant("compute"), {(226, 128)}) == []


def test_an_extra_that_the_host_has_not_is_said_and_no_refusal() -> None:
    described = [
        operation.describe() for operation in plan_devices(grant("utility", extras=("gdrdrv",)), FULL, (), str)
    ]
    assert "give gdrdrv devices" in described


@pytest.mark.parametrize(
    ("kinds", "fields", "path"),
    [
        pytest.param({"ctl"}, {}, "/dev/nvidiactl", id="no control node"),
        pytest.param({"uvm"}, {}, "/dev/nvidia-uvm", id="no uvm for compute"),
        pytest.param({"modeset"}, {}, "/dev/nvidia-modeset", id="no modeset for display"),
        pytest.param(set(), {"imex_channels": (8,)}, "/dev/nvidia-caps-imex-channels/channel8", id="no such channel"),
        pytest.param(set(), {"mig": (MigDevice("GPU-9", 1, 0, ()),)}, "GPU-9", id="no parent"),
    ],
)
def test_a_node_that_is_missing_on_the_host_is_named(kinds: set[str], fields: dict[str, object], path: str) -> None:
    host = changed(FULL, control=tuple(device for device in FULL.control if device.kind not in kinds))
    with pytest.raises(InventoryError, match=f"{path}.* is missing on this host"):
        plan_devices(grant("compute", "display", **fields), host, (), str)


GIVEN = {"/dev/nvidia0": (195, 0), "/dev/nvidiactl": (195, 255), "/dev/nvidia-uvm": (510, 0)}


@pytest.mark.parametrize(
    ("words", "fields", "without", "says"),
    [
        pytest.param(("compute",), {}, "", "", id="everything is there"),
        pytest.param(("compute",), {}, "/dev/nvidia-uvm", "/dev/nvidia-uvm 510:0", id="no uvm for compute"),
        pytest.param(("utility",), {}, "/dev/nvidia-uvm", "", id="no uvm for utility"),
        pytest.param(("utility",), {}, "/dev/nvidiactl", "/dev/nvidiactl 195:255", id="no control node"),
        pytest.param(("display",), {}, "", "", id="modeset is the engine's decision"),
        pytest.param(
            ("utility",), {"mig": (MIG,)}, "", "/dev/nvidia1 195:1", id="the parent of a MIG device was not given"
        ),
    ],
)
def test_nodes_that_the_engine_did_not_give_are_named(
    words: tuple[str, ...], fields: dict[str, object], without: str, says: str
) -> None:
    given = [DeviceNode(path, "c", *numbers) for path, numbers in GIVEN.items() if path != without]
    refusals: list[HookError] = []
    try:
        check_given(grant(*words, adds_devices=False, **fields), FULL, given)
    except RequestError as refusal:
        refusals.append(refusal)
    assert [refusal.what for refusal in refusals] == (
        [f"device node {says} was not given to the container with its GPU"] if says else []
    )
