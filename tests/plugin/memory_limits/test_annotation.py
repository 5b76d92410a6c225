"""What `grapnel.dev/memory` says."""

from __future__ import annotations

import pytest

from plugin.sharing.memory_limits.request import GivenMemory, parse_annotation, render_annotation
from tests.plugin.fakes import gpu

FIRST, SECOND = gpu(0).uuid, gpu(1).uuid


@pytest.mark.parametrize("is_required", [True, False], ids=["required", "preferred"])
def test_what_is_written_is_read(is_required: bool) -> None:  # noqa: FBT001 - of a table
    given = GivenMemory({FIRST: 1 << 30, SECOND: 16 << 30}, is_required)
    assert parse_annotation(render_annotation(given)) == given


def test_memory_of_a_mig_device_is_read() -> None:
    mig = f"MIG-{FIRST[4:]}"
    assert parse_annotation(f"{mig}=1073741824").memory == {mig: 1 << 30}


def test_nothing_is_no_annotation() -> None:
    assert render_annotation(GivenMemory({}, is_required=True)) == ""


def test_it_reads_as_documented() -> None:
    assert render_annotation(GivenMemory({FIRST: 17179869184}, is_required=True)) == f"required,{FIRST}=17179869184"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("required", id="nothing that is required"),
        pytest.param(f"{FIRST}", id="no amount"),
        pytest.param(f"{FIRST}=", id="an empty amount"),
        pytest.param(f"{FIRST}=0", id="no memory at all"),
        pytest.param(f"{FIRST}=-1", id="less than nothing"),
        pytest.param(f"{FIRST}=+1", id="a sign"),
        pytest.param(f"{FIRST}=1G", id="a unit"),
        pytest.param(f"{FIRST}=18446744073709551615", id="the driver's word for no limit"),
        pytest.param(f"{FIRST}=1_000", id="a number as python writes it"),
        pytest.param(f"{FIRST}=\u0661", id="a digit of another script"),
        pytest.param(f"{FIRST}=1,{FIRST}=2", id="one gpu twice"),
        pytest.param(f"{FIRST}=1,", id="a comma at the end"),
        pytest.param(f"{FIRST}=1,required", id="required at the end"),
        pytest.param("GPU-0=1", id="no uuid"),
        pytest.param(f"{FIRST}=1\n", id="a line end"),
        pytest.param(",".join(f"{gpu(number).uuid}=1" for number in range(65)), id="more gpus than a machine has"),
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"names|number|UUID"):
        parse_annotation(text)
