"""A driver's own list becomes the data file.

The chips are entries of ``supported-gpus.json`` of driver 590.48.01, features that nothing depends on left out.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from provision.planning.driver.gpu_list import GpuList, Group, parse_list, render_list, renew_list

CHIPS = [
    {"devid": "0x0020", "name": "RIVA TNT", "legacybranch": "71.86.xx", "features": []},
    {"devid": "0x0FC6", "name": "GeForce GTX 650", "legacybranch": "470.xx", "features": []},
    {"devid": "0x1DB6", "name": "Tesla V100-PCIE-32GB", "legacybranch": "580.xx", "features": ["runtimepm"]},
    {
        "devid": "0x2335",
        "subdevid": "0x18BE",
        "subvendorid": "0x10DE",
        "name": "NVIDIA H200",
        "features": ["kernelopen", "gsp_proprietary_supported"],
    },
    {
        "devid": "0x2335",
        "subdevid": "0x18BF",
        "subvendorid": "0x10DE",
        "name": "NVIDIA H200",
        "features": ["kernelopen", "gsp_proprietary_supported"],
    },
    {
        "devid": "0x2342",
        "subdevid": "0x16EB",
        "subvendorid": "0x10DE",
        "name": "NVIDIA GH200 120GB",
        "features": ["kernelopen"],
    },
    {
        "devid": "0x2342",
        "subdevid": "0x1809",
        "subvendorid": "0x10DE",
        "name": "NVIDIA GH200 480GB",
        "features": ["kernelopen"],
    },
    {"devid": "0x2C02", "name": "NVIDIA GeForce RTX 5080", "features": ["kernelopen"]},
    {
        "devid": "0x249C",
        "name": "NVIDIA GeForce RTX 3080 Laptop GPU",
        "features": ["kernelopen", "gsp_proprietary_supported"],
    },
    {
        "devid": "0x249C",
        "subdevid": "0x1194",
        "subvendorid": "0x1D05",
        "name": "NVIDIA GeForce RTX 3060 Laptop GPU",
        "features": ["kernelopen", "gsp_proprietary_supported"],
    },
]
PRESENT = GpuList(
    schema="grapnel.dev/supported-gpus/v1",
    date="2026-11-22",
    sources=("elsewhere",),
    groups=(Group(open=True, proprietary=False, oldest=570, newest=None, gpus={"2c05": "NVIDIA GeForce RTX 5070 Ti"}),),
)


def renewed() -> GpuList:
    shipped = json.dumps({"chips": CHIPS}).encode()
    return renew_list(shipped, PRESENT, date="2027-02-01", source="driver 590.48.01")


def test_gpus_are_grouped_by_what_they_run() -> None:
    groups = {(each.open, each.proprietary, each.oldest, each.newest): each.gpus for each in renewed().groups}

    assert groups == {
        (False, True, None, 470): {"0fc6": "GeForce GTX 650"},
        (False, True, None, 580): {"1db6": "Tesla V100-PCIE-32GB"},
        (True, True, None, None): {
            "2335": "NVIDIA H200",
            "249c": "NVIDIA GeForce RTX 3080 Laptop GPU",
            "249c:1d05:1194": "NVIDIA GeForce RTX 3060 Laptop GPU",
        },
        (True, False, None, None): {
            "2342:10de:16eb": "NVIDIA GH200 120GB",
            "2342:10de:1809": "NVIDIA GH200 480GB",
        },
        # The first branch is carried over from the chip's other GPUs.
        (True, False, 570, None): {"2c02": "NVIDIA GeForce RTX 5080"},
    }


def test_what_is_written_is_read_again() -> None:
    assert parse_list(render_list(renewed()).encode()) == renewed()


def test_the_list_says_where_it_is_from() -> None:
    assert renewed().date == "2027-02-01"
    assert renewed().sources == ("driver 590.48.01",)


@pytest.mark.parametrize("text", [b"{}", b'{"chips": [{"devid": 4096}]}', b"<html>"])
def test_another_file_is_refused(text: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        renew_list(text, PRESENT, date="2027-02-01", source="-")
