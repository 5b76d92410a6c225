"""Which kernel module a node gets, and with which branch, for the mixtures of GPUs that exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.declaration.spec.model import KernelModule
from provision.planning.driver.branches import check_branch
from provision.planning.driver.flavour import Flavour, choose
from provision.planning.driver.gpus import support
from provision.planning.driver.terms import Flavour as Value
from provision.planning.node_plan import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.planning.driver.gpus import GpuSupport

V100, P40, T4, A100, H100, GH200, B200, NEW = "1db6", "1b38", "1eb8", "20b0", "2330", "2342", "2901", "3f00"
GTX_650 = "0fc6"


def gpus(devices: Sequence[str]) -> list[GpuSupport]:
    return [support(device) for device in devices]


# nvidia-driver-assistant, `get_driver_from_json_hints` with supported-gpus.json: what it recommends for these GPUs. It
# refuses branches before 560, so every branch here is newer.
ASSISTANT = {
    "all run the open one": ((T4, A100, H100), Value.OPEN),
    "one kind that runs both": ((A100,), Value.OPEN),
    "open only": ((B200, B200), Value.OPEN),
    "Grace Hopper": ((GH200,), Value.OPEN),
    "all need the proprietary one": ((V100, P40), Value.PROPRIETARY),
    "Volta beside Ampere": ((V100, A100), Value.PROPRIETARY),
    "an unknown one": ((NEW,), Value.OPEN),
    "an unknown one beside Ampere": ((NEW, A100), Value.OPEN),
    "an unknown one beside Volta": ((NEW, V100), Value.OPEN),
    "Blackwell beside Volta": ((B200, V100), Value.OPEN),
}


@pytest.mark.parametrize("case", ASSISTANT.values(), ids=ASSISTANT.keys())
def test_the_choice_is_that_of_nvidia_s_assistant(case: tuple[tuple[str, ...], Value]) -> None:
    devices, expected = case

    found = choose(gpus(devices), "580.126.09", KernelModule.AUTO)

    assert isinstance(found, Flavour)
    assert found.value is expected


REASONS = {
    "before 560 the default is proprietary": (
        (A100,),
        "550.163.01",
        Flavour(Value.PROPRIETARY, "branches before 560 have the proprietary module"),
    ),
    "from 560 on it is open": (
        (A100, H100),
        "560.35.05",
        Flavour(Value.OPEN, "all GPUs support it, and from branch 560 on it is the default"),
    ),
    "a GPU that needs the open one gets it before 560": (
        (GH200,),
        "550.163.01",
        Flavour(Value.OPEN, "NVIDIA GH200 120GB needs the open module"),
    ),
    "a GPU that needs the proprietary one": (
        (V100,),
        "580",
        Flavour(Value.PROPRIETARY, "Tesla V100-PCIE-32GB needs the proprietary module"),
    ),
    "an unknown one": (
        (NEW,),
        "595.91.07",
        Flavour(Value.OPEN, "GPU 3f00 is not in the list of 2026-11-22, and new GPUs need the open module"),
    ),
    "what does not work is said": (
        (B200, V100),
        "580",
        Flavour(Value.OPEN, "NVIDIA B200 needs the open module; Tesla V100-PCIE-32GB does not work with it"),
    ),
    "no GPU": ((), "580", Flavour(Value.NONE, "the node has no NVIDIA GPU, and needs no kernel module")),
}


@pytest.mark.parametrize("case", REASONS.values(), ids=REASONS.keys())
def test_the_choice_has_a_reason(case: tuple[tuple[str, ...], str, Flavour]) -> None:
    devices, version, expected = case

    assert choose(gpus(devices), version, KernelModule.AUTO) == expected


def test_none_is_left_alone() -> None:
    found = choose(gpus([B200]), "550", KernelModule.NONE)

    assert isinstance(found, Flavour)
    assert found.value is Value.NONE


@pytest.mark.parametrize("declared", [KernelModule.OPEN, KernelModule.PROPRIETARY])
def test_a_declared_flavour_that_works_is_taken(declared: KernelModule) -> None:
    assert choose(gpus([A100]), "580", declared) == Flavour(Value(declared.value), "declared")


REFUSED = {
    "open with Volta": (
        (V100, A100),
        "580",
        KernelModule.OPEN,
        "driver.kernelModule is open, which does not support Tesla V100-PCIE-32GB",
        "declare kernelModule: proprietary or auto; branch 580 is the newest that works on this node",
    ),
    "open before there was one": (
        (A100,),
        "470.256.02",
        KernelModule.OPEN,
        "driver.kernelModule is open, which driver 470.256.02 does not have",
        "declare kernelModule: proprietary, or branch 515 or newer",
    ),
    "proprietary with Blackwell": (
        (B200,),
        "580",
        KernelModule.PROPRIETARY,
        "driver.kernelModule is proprietary, which does not support NVIDIA B200",
        "declare kernelModule: open, or auto",
    ),
    "proprietary after it was removed": (
        (A100,),
        "620.12.04",
        KernelModule.PROPRIETARY,
        "driver 620.12.04 has no proprietary kernel module: 620 is the first branch without",
        "declare kernelModule: open, or branch 619 or older",
    ),
    "Volta after it was removed": (
        (V100,),
        "620.12.04",
        KernelModule.AUTO,
        "driver 620.12.04 has no proprietary kernel module: 620 is the first branch without",
        "declare driver.branch: '580', the newest that works on this node",
    ),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_a_flavour_that_does_not_work_is_refused(case: tuple[tuple[str, ...], str, KernelModule, str, str]) -> None:
    devices, version, declared, message, hint = case

    found = choose(gpus(devices), version, declared)

    assert isinstance(found, Problem)
    assert (found.message, found.hint) == (message, hint)


@pytest.mark.parametrize(
    ("devices", "version"),
    [((V100,), "580.178.04"), ((A100, H100), "620.12.04"), ((B200,), "570"), ((NEW,), "535"), ((), "390.157")],
)
def test_branches_that_the_gpus_run_are_no_problem(devices: tuple[str, ...], version: str) -> None:
    assert check_branch(gpus(devices), version) is None


BRANCHES = {
    "too new": (
        (V100, A100),
        "590.48.01",
        "driver 590.48.01 does not support Tesla V100-PCIE-32GB: branch 580 is the last one that does",
        "declare driver.branch: '580', the newest that works on this node, or a version of it",
    ),
    "too new for the oldest one of two": (
        (GTX_650, V100),
        "590",
        "driver 590 does not support GeForce GTX 650, Tesla V100-PCIE-32GB: branch 470 is the last one that does",
        "declare driver.branch: '470', the newest that works on this node, or a version of it",
    ),
    "too old": (
        (B200, A100),
        "550.163.01",
        "driver 550.163.01 does not support NVIDIA B200: branch 570 is the first one that does",
        "declare driver.branch: '570' or a newer one",
    ),
    "too old, and another GPU ends early": (
        (B200, V100),
        "550.163.01",
        "driver 550.163.01 does not support NVIDIA B200: branch 570 is the first one that does",
        "declare driver.branch: '580', the newest that works on this node, or a version of it",
    ),
    "nothing works for both": (
        (B200, GTX_650),
        "580",
        "driver 580 does not support GeForce GTX 650: branch 470 is the last one that does",
        "no branch supports all of the node's GPUs (GeForce GTX 650, NVIDIA B200): take some of them out of it",
    ),
}


@pytest.mark.parametrize("case", BRANCHES.values(), ids=BRANCHES.keys())
def test_a_branch_that_does_not_work_is_refused_with_one_that_does(
    case: tuple[tuple[str, ...], str, str, str],
) -> None:
    devices, version, message, hint = case

    found = check_branch(gpus(devices), version)

    assert found is not None
    assert (found.message, found.hint) == (message, hint)
