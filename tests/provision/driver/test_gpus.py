"""The list of GPUs says what NVIDIA's own lists say.

The expectations are from ``supported-gpus.json`` of driver 590.48.01 and from the README of the open kernel modules.
"""

from __future__ import annotations

import re

import pytest

from provision.planning.driver.gpu_list import parse_list
from provision.planning.driver.gpus import GpuSupport, list_date, support
from tests.provision.samples import DATA

LIST = parse_list((DATA.parents[3] / "provision" / "planning" / "driver" / "data" / "supported-gpus.json").read_bytes())

KNOWN = {
    "Kepler ends with 470": (
        "0fc6",
        GpuSupport("GeForce GTX 650", None, 470, open=False, proprietary=True, known=True),
    ),
    "Maxwell ends with 580": ("17fd", GpuSupport("Tesla M40", None, 580, open=False, proprietary=True, known=True)),
    "Pascal ends with 580": ("1b38", GpuSupport("Tesla P40", None, 580, open=False, proprietary=True, known=True)),
    "Volta ends with 580": (
        "1db6",
        GpuSupport("Tesla V100-PCIE-32GB", None, 580, open=False, proprietary=True, known=True),
    ),
    "Turing has both": ("1eb8", GpuSupport("Tesla T4", None, None, open=True, proprietary=True, known=True)),
    "Ampere has both": (
        "20b0",
        GpuSupport("NVIDIA A100-SXM4-40GB", None, None, open=True, proprietary=True, known=True),
    ),
    "Ada begins with 525": ("26b9", GpuSupport("NVIDIA L40S", 525, None, open=True, proprietary=True, known=True)),
    "Hopper has both": (
        "2330",
        GpuSupport("NVIDIA H100 80GB HBM3", 520, None, open=True, proprietary=True, known=True),
    ),
    "Grace Hopper is open only": (
        "2348",
        GpuSupport("NVIDIA GH200 144G HBM3e", 520, None, open=True, proprietary=False, known=True),
    ),
    "Blackwell is open only": ("2901", GpuSupport("NVIDIA B200", 570, None, open=True, proprietary=False, known=True)),
    "Blackwell Ultra begins with 580": (
        "3182",
        GpuSupport("NVIDIA B300 SXM6 AC", 580, None, open=True, proprietary=False, known=True),
    ),
    "a new GPU is taken for an open one": (
        "3f00",
        GpuSupport("GPU 3f00", None, None, open=True, proprietary=False, known=False),
    ),
}


@pytest.mark.parametrize("case", KNOWN.values(), ids=KNOWN.keys())
def test_a_gpu_runs_what_the_lists_say(case: tuple[str, GpuSupport]) -> None:
    device, expected = case

    assert support(device) == expected


def test_a_subsystem_has_its_own_name() -> None:
    assert support("20b0", "10de:1450").name == "NVIDIA A100-PG509-200"
    assert support("20B0", "10DE:1450").name == "NVIDIA A100-PG509-200"
    assert support("20b0", "1028:ffff").name == "NVIDIA A100-SXM4-40GB"


def test_a_device_is_in_one_group() -> None:
    devices = [{key[:4] for key in group.gpus} for group in LIST.groups]

    assert len(set().union(*devices)) == sum(map(len, devices))


def test_keys_are_devices_with_or_without_a_subsystem() -> None:
    form = re.compile(r"[0-9a-f]{4}(:[0-9a-f]{4}:[0-9a-f]{4})?")

    assert all(form.fullmatch(key) for group in LIST.groups for key in group.gpus)


def test_who_does_not_run_the_open_module_has_a_last_branch() -> None:
    assert {group.newest for group in LIST.groups if not group.open} == {470, 580}
    assert {group.newest for group in LIST.groups if group.open} == {None}


def test_the_list_has_a_day() -> None:
    assert re.fullmatch(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]", list_date())
