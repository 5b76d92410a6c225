"""What a container asks for, in tables."""

from __future__ import annotations

import pytest

from runtime_hook.errors import RequestError
from runtime_hook.host.inventory import Gpu
from runtime_hook.request.capabilities import parse_capabilities
from runtime_hook.request.visible import select_visible

GPUS = tuple(
    Gpu(index, f"GPU-0000000{index}", index, f"0000:1{index}:00.0", f"/dev/nvidia{index}", 195, index)
    for index in range(3)
)


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        pytest.param("all", [0, 1, 2], id="all"),
        pytest.param("ALL", [0, 1, 2], id="all in capitals"),
        pytest.param("none", [], id="none"),
        pytest.param("0", [0], id="an index"),
        pytest.param("2,0", [0, 2], id="indices in any order"),
        pytest.param("0,0", [0], id="a duplicate counts once"),
        pytest.param("0,GPU-00000000,0000:10:00.0", [0], id="one GPU by three names"),
        pytest.param("gpu-00000001", [1], id="a UUID in lower case"),
        pytest.param("00000000:11:00.0", [1], id="a PCI address with a long domain"),
        pytest.param("12:00.0", [2], id="a PCI address without a domain"),
        pytest.param(",1,,", [1], id="empty elements are skipped"),
        pytest.param("0,all", [0, 1, 2], id="all in a list"),
        pytest.param("none,all", [], id="none before all"),
        pytest.param("all,none", [0, 1, 2], id="all before none"),
    ],
)
def test_visible_devices_select(visible: str, indices: list[int]) -> None:
    assert [gpu.index for gpu in select_visible(visible, GPUS)] == indices


@pytest.mark.parametrize(
    "name", ["3", "-1", "GPU-9", "0:1", "MIG-1234", "0000:19:00.0", "01", " 0", "0\n", "../0", "x" * 5000]
)
def test_an_unknown_gpu_refuses_the_container_by_name(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        select_visible(f"0,{name}", GPUS)
    assert caught.value.what.startswith(f"unknown GPU {name[:2].strip()}"[:12])
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("environment", "supported", "capabilities"),
    [
        pytest.param({}, ("compute", "utility"), ("compute", "utility"), id="unset"),
        pytest.param({"NVIDIA_DRIVER_CAPABILITIES": ""}, ("compute", "utility"), ("compute", "utility"), id="empty"),
        pytest.param({}, ("utility", "video"), ("utility",), id="unset, of what is supported"),
        pytest.param({"NVIDIA_DRIVER_CAPABILITIES": "all"}, ("utility", "video"), ("utility", "video"), id="all"),
        pytest.param({"NVIDIA_DRIVER_CAPABILITIES": "x,all"}, ("utility",), ("utility",), id="all wins over nonsense"),
        pytest.param(
            {"NVIDIA_DRIVER_CAPABILITIES": "utility,,utility"}, ("compute", "utility"), ("utility",), id="twice"
        ),
        pytest.param({"CUDA_VERSION": "9"}, ("compute", "video"), ("compute", "video"), id="a legacy image"),
        pytest.param(
            {"CUDA_VERSION": "9", "NVIDIA_REQUIRE_CUDA": ""}, ("compute", "video"), ("compute",), id="a new image"
        ),
    ],
)
def test_driver_capabilities(
    environment: dict[str, str], supported: tuple[str, ...], capabilities: tuple[str, ...]
) -> None:
    assert parse_capabilities(environment, supported) == capabilities


def test_an_unsupported_capability_refuses_the_container() -> None:
    with pytest.raises(RequestError, match="unsupported driver capabilities video"):
        parse_capabilities({"NVIDIA_DRIVER_CAPABILITIES": "compute,video"}, ("compute", "utility"))
