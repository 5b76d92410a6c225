"""Names of devices, in every form and mixture."""

from __future__ import annotations

import pytest

from runtime_hook.base.errors import RequestError
from runtime_hook.request.sources import split_names
from runtime_hook.request.visible import select_visible
from tests.runtime_hook.nodes import MIG, inventory, uuid

NODE = inventory()


def chosen(text: str) -> tuple[list[int], list[int]]:
    found = select_visible(split_names(text), NODE)
    return [gpu.index for gpu in found.gpus], [MIG.index(mig) for mig in found.mig]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "gpus", "mig"),
    [
        pytest.param("0", [0], [], id="an index"),
        pytest.param("2", [2], [], id="the index of a divided GPU is the GPU"),
        pytest.param("1,0", [0, 1], [], id="indices in any order"),
        pytest.param("0,0", [0], [], id="a duplicate counts once"),
        pytest.param(f"0,{uuid(0)},0000:10:00.0", [0], [], id="one GPU by three names"),
        pytest.param(uuid(1).lower(), [1], [], id="a UUID in lower case"),
        pytest.param(uuid(1).upper(), [1], [], id="a UUID in upper case"),
        pytest.param("00000000:11:01.0", [1], [], id="a PCI address with a long domain"),
        pytest.param("11:01.0", [1], [], id="a PCI address without a domain"),
        pytest.param("0:11:1.0", [1], [], id="a PCI address without padding"),
        pytest.param(" 1 ,\t0", [0, 1], [], id="white space around elements"),
        pytest.param(",1,,", [1], [], id="empty elements are skipped"),
        pytest.param("2:0", [], [0], id="a MIG device by its indices"),
        pytest.param("2:1,2:0,2:1", [], [0, 1], id="MIG devices by their indices, one twice"),
        pytest.param(MIG[1].uuid, [], [1], id="a MIG device by its UUID"),
        pytest.param(MIG[1].uuid.upper(), [], [1], id="a MIG UUID in upper case"),
        pytest.param(f"MIG-{uuid(2)}/5/0", [], [2], id="a MIG device by its instances"),
        pytest.param(f"MIG-{uuid(2)}/1/1,2:1,{MIG[1].uuid}", [], [1], id="one MIG device by three names"),
        pytest.param(f"0,2:0,MIG-{uuid(2)}/5/0", [0], [0, 2], id="GPUs and MIG devices"),
        pytest.param("2,2:0", [2], [0], id="a divided GPU and one of its devices"),
        pytest.param("nvidia.com/gpu=0", [0], [], id="a CDI name"),
        pytest.param("runtime.nvidia.com/gpu=1", [1], [], id="a CDI name for the runtime itself"),
        pytest.param("nvidia.com/gpu=2:1,runtime.nvidia.com/gpu=0,1", [0, 1], [1], id="CDI names and others"),
        pytest.param(f"nvidia.com/gpu={uuid(1)}", [1], [], id="a UUID as CDI name"),
        pytest.param("all", [0, 1, 2], [0, 1, 2], id="all: every GPU and every MIG device"),
        pytest.param("ALL", [0, 1, 2], [0, 1, 2], id="all in capitals"),
        pytest.param("nvidia.com/gpu=all", [0, 1, 2], [0, 1, 2], id="all as CDI name"),
        pytest.param("none", [], [], id="none"),
        pytest.param("0,all", [0, 1, 2], [0, 1, 2], id="all in a list"),
        pytest.param("none,all", [], [], id="none before all"),
        pytest.param("all,none", [0, 1, 2], [0, 1, 2], id="all before none"),
        pytest.param("nonsense,none", [], [], id="none behind a name that is not looked at"),
    ],
)
def test_names_select(text: str, gpus: list[int], mig: list[int]) -> None:
    assert chosen(text) == (gpus, mig)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "3", "-1", "+0", "01", "0x0", "GPU-", "GPU-00000000", "0:1", "2:-1", "2:2", "2:00", "MIG-", "MIG-1234",
        f"MIG-{uuid(2)}/1", f"MIG-{uuid(2)}/1/9", f"MIG-{uuid(0)}/1/0", "0000:19:00.0", "1:2:3:4.0", ":", ".", "0.0",
        "0\0", "\ud800", "../0", "nvidia.com/gpu=", "nvidia.com/gpu=9", "x" * 5000, "9" * 5000, ":" * 5000, "²",
    ],
)  # fmt: skip
def test_an_unknown_name_refuses_the_container(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        select_visible(("0", name), NODE)
    assert caught.value.what.startswith("unknown GPU ")
    assert len(str(caught.value)) < 1000
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "name", ["management.nvidia.com/gpu=all", "vendor.com/nic=0", "nvidia.com/mig=0", "=0", "gpu=0", "a=b=c"]
)
def test_a_cdi_name_of_another_kind_refuses_the_container(name: str) -> None:
    with pytest.raises(RequestError, match="unknown CDI device"):
        select_visible((name,), NODE)


def test_a_gpu_without_address_is_not_every_name_that_is_too_long() -> None:
    """An empty address was the table's entry for a name that is refused for its length."""
    nameless = inventory(gpus=tuple(type(gpu)(**{**vars(gpu), "pci_address": ""}) for gpu in NODE.gpus))
    with pytest.raises(RequestError, match="unknown GPU"):
        select_visible(("x" * 300,), nameless)


def test_more_names_than_any_node_has_devices_refuse_the_container() -> None:
    with pytest.raises(RequestError, match="lists 4097 devices"):
        select_visible(("0",) * 4097, NODE)
