"""Requests and placed devices held against a node with three GPUs, the last of them divided."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_hook.base.errors import RequestError
from runtime_hook.host.inventory import ControlDevice, Inventory
from runtime_hook.inputs.config import HookConfig
from runtime_hook.request.claim import Claim, Nothing
from runtime_hook.request.entitlement import find_claim
from runtime_hook.request.extras import GATED_VARIABLES, MIG_VARIABLES
from runtime_hook.request.grant import EXTRA_VARIABLES, Grant, gpus_of, resolve_claim
from tests.runtime_hook.nodes import CONTROL, MIG, container, inventory, uuid

NODE = inventory()
KUBELET, ENV = HookConfig(), HookConfig(entitlement="env")
GPU0, GPU2 = "/dev/nvidia0", "/dev/nvidia2"
CAP = "/dev/nvidia-caps/nvidia-cap{}".format
CHANNEL0 = "/dev/nvidia-caps-imex-channels/channel0"


def decide(config: HookConfig, *env: str, **parts: Any) -> Grant | Nothing:
    made = container(*env, **parts)
    claim = find_claim(made, config)
    return resolve_claim(claim, made, config, NODE) if isinstance(claim, Claim) else claim


def granted(config: HookConfig, *env: str, **parts: Any) -> Grant:
    found = decide(config, *env, **parts)
    assert isinstance(found, Grant), found
    return found


@pytest.mark.parametrize(
    ("paths", "gpus", "mig"),
    [
        pytest.param([GPU0], [0], [], id="a GPU"),
        pytest.param([GPU0, GPU2], [0, 2], [], id="a divided GPU's node alone is the GPU"),
        pytest.param([GPU2, CAP(10), CAP(11)], [], [0], id="a MIG device, not its GPU"),
        pytest.param([GPU2, CAP(10), CAP(11), CAP(12)], [], [0, 1], id="two that share a GPU instance"),
        pytest.param([GPU0, GPU2, CAP(20), CAP(21)], [0], [2], id="a GPU and a MIG device of another"),
    ],
)
def test_device_nodes_prove(paths: list[str], gpus: list[int], mig: list[int]) -> None:
    found = granted(KUBELET, nodes=[*paths, "/dev/nvidiactl"])
    assert [gpu.index for gpu in found.gpus] == gpus
    assert [MIG.index(each) for each in found.mig] == mig
    assert (found.source, found.adds_devices) == ("devices", False)


@pytest.mark.parametrize(
    ("paths", "words"),
    [
        pytest.param([GPU2, CAP(10)], f"{MIG[0].uuid} was allocated without {CAP(11)}", id="no compute instance"),
        pytest.param([GPU2, CAP(21)], f"MIG-{uuid(2)}/5/0 was allocated without {CAP(20)}", id="no GPU instance"),
        pytest.param([CAP(10), CAP(11)], f"{MIG[0].uuid} was allocated without {GPU2}", id="no GPU"),
    ],
)
def test_half_a_mig_device_is_refused(paths: list[str], words: str) -> None:
    with pytest.raises(RequestError, match=words):
        decide(KUBELET, nodes=paths)


def test_device_nodes_prove_extras_and_variables_do_not() -> None:
    asked = ("NVIDIA_GDS=enabled", "NVIDIA_GDRCOPY=enabled", "NVIDIA_IMEX_CHANNELS=7", "NVIDIA_VISIBLE_DEVICES=all")
    found = granted(KUBELET, *asked, nodes=[GPU0, CHANNEL0, "/dev/nvidia-fs0", CAP(2)])
    assert found.extras == ("mig-monitor", "nvidia-fs")
    assert found.imex_channels == (0,)
    assert [gpu.index for gpu in found.gpus] == [0]


def test_extras_without_a_gpu_are_nothing() -> None:
    assert isinstance(decide(KUBELET, nodes=[CHANNEL0, "/dev/gdrdrv"]), Nothing)


def test_an_allocation_names_mig_devices_of_a_privileged_container() -> None:
    names = f"{uuid(0)},{MIG[1].uuid}"
    found = granted(KUBELET, privileged=True, annotations={"grapnel.dev/allocation": names})
    assert found.names == (uuid(0), MIG[1].uuid)
    assert found.source == "annotation"


def test_an_allocation_of_the_mig_device_that_the_nodes_are_agrees() -> None:
    annotations = {"grapnel.dev/allocation": MIG[0].uuid}
    assert granted(KUBELET, nodes=[GPU2, CAP(10), CAP(11)], annotations=annotations).note == ""
    assert "which decide" in granted(KUBELET, nodes=[GPU0], annotations=annotations).note


def test_an_allocation_of_mig_devices_divides_the_gpu_whose_node_alone_is_there() -> None:
    annotations = {"grapnel.dev/allocation": f"{MIG[1].uuid.lower()},MIG-{uuid(2)}/5/0,GPU-of-another-plugin"}
    found = granted(KUBELET, nodes=[GPU0, GPU2], annotations=annotations)
    assert [gpu.index for gpu in found.gpus] == [0]
    assert found.mig == (MIG[1], MIG[2])


def test_an_allocation_gives_no_mig_device_of_a_gpu_that_is_not_there() -> None:
    found = granted(KUBELET, nodes=[GPU0], annotations={"grapnel.dev/allocation": MIG[0].uuid})
    assert ([gpu.index for gpu in found.gpus], found.mig) == ([0], ())


def test_a_denied_container_with_a_gpu_is_refused_and_one_without_is_not() -> None:
    """Its device nodes are there already: a container that only got no files would keep the GPU."""
    denied = HookConfig(denial="no rule allows it")
    with pytest.raises(RequestError, match="no rule allows it"):
        decide(denied, nodes=[GPU0])
    assert isinstance(decide(denied, nodes=[CHANNEL0]), Nothing)


@pytest.mark.parametrize(
    ("env", "extras", "channels"),
    [
        pytest.param([], (), (), id="nothing"),
        pytest.param(["NVIDIA_GDS=enabled", "NVIDIA_MOFED=enabled"], ("nvidia-fs", "infiniband"), (), id="two"),
        pytest.param(["NVIDIA_GDRCOPY=enabled", "NVIDIA_NVSWITCH=enabled"], ("gdrdrv", "nvswitch"), (), id="others"),
        pytest.param(["NVIDIA_GDS=true", "NVIDIA_MOFED=Enabled", "NVIDIA_NVSWITCH= enabled"], (), (), id="other words"),
        pytest.param(["NVIDIA_IMEX_CHANNELS=7,0,07"], (), (0, 7), id="channels, one twice"),
        pytest.param(["NVIDIA_MIG_CONFIG_DEVICES=", "NVIDIA_MIG_MONITOR_DEVICES=,"], (), (), id="empty MIG variables"),
    ],
)
def test_extras_by_request(env: list[str], extras: tuple[str, ...], channels: tuple[int, ...]) -> None:
    found = granted(ENV, "NVIDIA_VISIBLE_DEVICES=0", *env)
    assert (found.extras, found.imex_channels) == (extras, channels)


@pytest.mark.parametrize("visible", ["all", "0", "none", "2"])
def test_a_privileged_container_may_administer_mig(visible: str) -> None:
    asked = ("NVIDIA_MIG_CONFIG_DEVICES=all", "NVIDIA_MIG_MONITOR_DEVICES=All")
    found = granted(ENV, f"NVIDIA_VISIBLE_DEVICES={visible}", *asked, privileged=True)
    assert found.extras == ("mig-config", "mig-monitor")


@pytest.mark.parametrize("privileged", [True, False])
def test_what_the_platform_allocates_comes_without_the_administration_of_mig(*, privileged: bool) -> None:
    asked = (*(f"{variable}=all" for variable, _ in MIG_VARIABLES), "NVIDIA_VISIBLE_DEVICES=all")
    given = {"annotations": {"grapnel.dev/allocation": uuid(0)}} if privileged else {"nodes": [GPU0]}
    found = granted(KUBELET, *asked, privileged=privileged, **given)
    assert ([gpu.index for gpu in found.gpus], found.extras) == ([0], ())


@pytest.mark.parametrize("variable", ["NVIDIA_MIG_CONFIG_DEVICES", "NVIDIA_MIG_MONITOR_DEVICES"])
def test_who_is_privileged_among_users_of_its_own_does_not_administer_mig(variable: str) -> None:
    """CAP_SYS_ADMIN counted in whichever user namespace, where everybody can have it."""
    with pytest.raises(RequestError, match=f"{variable} is for privileged containers"):
        decide(ENV, "NVIDIA_VISIBLE_DEVICES=all", f"{variable}=all", privileged=True, own_users=True)


@pytest.mark.parametrize(
    ("env", "privileged", "words"),
    [
        pytest.param(
            ["NVIDIA_MIG_CONFIG_DEVICES=all"], False, "NVIDIA_MIG_CONFIG_DEVICES is for privileged", id="unprivileged"
        ),
        pytest.param(["NVIDIA_MIG_MONITOR_DEVICES=0"], True, "MONITOR_DEVICES names 0", id="one GPU's administration"),
        pytest.param(
            ["NVIDIA_VISIBLE_DEVICES=2:0", "NVIDIA_MIG_CONFIG_DEVICES=all"], True, "single MIG", id="single devices"
        ),
        pytest.param(
            ["NVIDIA_IMEX_CHANNELS=1"], False, "channel 1 does not exist on this host", id="a missing channel"
        ),
        pytest.param(["NVIDIA_IMEX_CHANNELS=1048576"], False, "no number from 0 to 1048575", id="beyond the last"),
        pytest.param(["NVIDIA_IMEX_CHANNELS=-1"], False, "no number", id="a negative channel"),
        pytest.param(["NVIDIA_IMEX_CHANNELS=²"], False, "no number", id="an invalid digit"),
        pytest.param([f"NVIDIA_IMEX_CHANNELS={'9' * 5000}"], False, "no number", id="a long number"),
        pytest.param([f"NVIDIA_IMEX_CHANNELS={'0,' * 5000}"], False, "lists 5000 IMEX", id="many channels"),
    ],
)
def test_extras_that_are_refused(env: list[str], words: str, *, privileged: bool) -> None:
    with pytest.raises(RequestError, match=words) as caught:
        decide(ENV, "NVIDIA_VISIBLE_DEVICES=0", *env, privileged=privileged)
    assert len(str(caught.value)) < 400


def test_extras_by_variable_do_not_count_where_variables_do_not() -> None:
    strict = HookConfig(entitlement="env", accept_envvar_unprivileged=False, accept_volume_mounts=True)
    assert granted(strict, "NVIDIA_GDS=enabled", requests=["0"]).extras == ()
    assert granted(strict, "NVIDIA_GDS=enabled", requests=["0"], privileged=True).extras == ("nvidia-fs",)
    assert granted(strict, "NVIDIA_GDS=enabled", requests=["0"], privileged=True, own_users=True).extras == ()


@pytest.mark.parametrize(
    ("env", "adds"),
    [
        pytest.param(["NVIDIA_VISIBLE_DEVICES=none"], False, id="none"),
        pytest.param(["NVIDIA_VISIBLE_DEVICES=2:0"], True, id="a MIG device"),
        pytest.param(["NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_GDS=enabled"], True, id="an extra alone"),
        pytest.param(["NVIDIA_VISIBLE_DEVICES=none", "NVIDIA_IMEX_CHANNELS=0"], True, id="a channel alone"),
    ],
)
def test_the_hook_adds_the_device_nodes_of_a_request(env: list[str], *, adds: bool) -> None:
    assert granted(ENV, *env).adds_devices == adds


def test_a_privileged_container_gets_what_it_asks_for_and_not_all() -> None:
    found = granted(ENV, "NVIDIA_VISIBLE_DEVICES=1", privileged=True, nodes=[GPU0, GPU2])
    assert found.names == (uuid(1),)


def test_gpus_that_are_given_in_part_count_for_requirements() -> None:
    found = granted(ENV, "NVIDIA_VISIBLE_DEVICES=0,2:0,2:1")
    assert [gpu.index for gpu in gpus_of(found, NODE)] == [0, 2]


def test_every_extra_is_looked_for() -> None:
    assert {name for name, _ in (*GATED_VARIABLES, *MIG_VARIABLES)} == EXTRA_VARIABLES
    assert {device.kind for device in CONTROL} >= {"mig-config", "mig-monitor"}


DISPLAYS = HookConfig(entitlement="env", supported_capabilities=("compute", "utility", "graphics", "display"))


@pytest.mark.parametrize(
    ("words", "kinds", "granted_display", "note"),
    [
        pytest.param("all", {"modeset"}, ["display"], "", id="all, and the host has the node"),
        pytest.param(
            "all", set(), [], "no display: this host has no /dev/nvidia-modeset", id="all of a host without it"
        ),
        pytest.param("compute,display", set(), ["display"], "", id="by name: the plan refuses it"),
        pytest.param("compute", set(), [], "", id="not asked for"),
    ],
)
def test_all_is_all_that_the_host_has(words: str, kinds: set[str], granted_display: list[str], note: str) -> None:
    """An H100 without nvidia-modeset refused every container of an image that asks for `all`."""
    control = tuple(device for device in CONTROL if device.kind != "modeset")
    control += tuple(ControlDevice("/dev/nvidia-modeset", 195, 254, kind) for kind in kinds)
    made = container("NVIDIA_VISIBLE_DEVICES=all", f"NVIDIA_DRIVER_CAPABILITIES={words}")
    claim = find_claim(made, DISPLAYS)
    assert isinstance(claim, Claim)
    found = resolve_claim(claim, made, DISPLAYS, Inventory(**{**vars(NODE), "control": control}))
    assert isinstance(found, Grant)
    assert [word for word in found.capabilities if word == "display"] == granted_display
    assert found.note == note
    assert "compute" in found.capabilities
