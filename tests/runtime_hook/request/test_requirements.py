"""The grammar of NVIDIA_REQUIRE_*, held against three GPUs of compute capability 8.0, CUDA 12.4, driver 550.163.01."""

from __future__ import annotations

import pytest

from runtime_hook.base.errors import RequestError, RequirementError
from runtime_hook.request.requirements import check_findings, evaluate, find_requirements
from tests.runtime_hook.nodes import GPUS, gpu, inventory, uuid

NODE = inventory()


def check(text: str) -> tuple[str, ...]:
    return check_findings(evaluate({"NVIDIA_REQUIRE_CUDA": text}, NODE, GPUS))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("  ", id="spaces"),
        pytest.param(",, ,", id="commas"),
        pytest.param("cuda>=12.4", id="at least what is there"),
        pytest.param("cuda<=12.4", id="at most what is there"),
        pytest.param("cuda=12.4", id="exactly what is there"),
        pytest.param("cuda=12.4.0", id="zeros at the end do not count"),
        pytest.param("cuda=012.04", id="zeros in front do not count"),
        pytest.param("cuda!=12", id="unlike"),
        pytest.param("cuda<12.10", id="numbers, not text"),
        pytest.param("driver>550", id="a longer version is greater"),
        pytest.param("driver=550.163.1", id="a driver's leading zero"),
        pytest.param("CUDA>=9.0,Driver>=1", id="properties in any case"),
        pytest.param("brand=TESLA", id="a brand in any case"),
        pytest.param("brand!=grid", id="not a brand"),
        pytest.param("arch>=7.5,arch<9.0", id="a range"),
        pytest.param("cuda>=99 cuda>=12", id="the second of two terms"),
        pytest.param("cuda>=99,brand=tesla brand=grid brand=tesla,driver>=550,driver<551", id="the last of three"),
        pytest.param("cuda>=12 nonsense", id="terms behind one that holds are not looked at"),
        pytest.param("cuda>=99,nonsense cuda>=12", id="factors behind one that fails are not looked at"),
        pytest.param("cuda<99999999999999999999999999", id="a number larger than any register"),
    ],
)
def test_met(text: str) -> None:
    assert check(text) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("cuda>=12.5", "cuda>=12.5 fails, as cuda is 12.4", id="too old"),
        pytest.param("cuda>12.4", "cuda>12.4 fails", id="no greater"),
        pytest.param("cuda<12.4", "cuda<12.4 fails", id="no less"),
        pytest.param("cuda!=12.4", "cuda!=12.4 fails", id="the same"),
        pytest.param("cuda>=12.4.1", "cuda>=12.4.1 fails", id="a patch release newer"),
        pytest.param("driver=550", "driver=550 fails, as driver is 550.163.01", id="a shorter version is another"),
        pytest.param("brand=grid", "brand=grid fails, as brand is Tesla", id="another brand"),
        pytest.param("brand!=tesla", "brand!=tesla fails", id="this brand"),
        pytest.param("arch>=9.0", "arch>=9.0 fails, as arch is 8.0", id="another architecture"),
        pytest.param("cuda>=12,arch=9.0", "arch=9.0 fails", id="the second of two factors"),
        pytest.param(
            "cuda>=13 brand=grid,driver>=1", "cuda>=13 fails, as cuda is 12.4, nor does one of 1", id="no term holds"
        ),
        pytest.param("cuda>=99 ,", "cuda>=99 fails", id="an empty term is ignored"),
    ],
)
def test_not_met_names_the_term_the_gpu_and_the_value(text: str, words: str) -> None:
    with pytest.raises(RequirementError) as caught:
        check(text)
    assert f"NVIDIA_REQUIRE_CUDA is not met on {uuid(0)}: " in caught.value.what
    assert words in caught.value.what
    assert caught.value.requirement.startswith("NVIDIA_REQUIRE_CUDA: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "cuda", "cuda>=", ">=12", "cuda>>12", "cuda=>12", "cuda==12", "cuda!12", "cuda~12", "cuda>=12.", "cuda>=.5",
        "cuda>=1..2", "cuda>=v12", "cuda>=twelve", "cuda>=1\0", "cuda>=\ud800", "cuda>=²", "gpu>=1", "brand>=tesla",
        "brand<a", "cuda>=1=2", "cuda>=12\n", " nonsense", "9" * 5000, "<" * 5000,
    ],
)  # fmt: skip
def test_what_is_no_requirement_refuses_the_container_by_name(text: str) -> None:
    with pytest.raises(RequestError, match=r"NVIDIA_REQUIRE_CUDA: .* is no requirement") as caught:
        check(text)
    assert not isinstance(caught.value, RequirementError)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_every_selected_gpu_must_meet_it() -> None:
    old = gpu(1, compute_capability="7.0")
    with pytest.raises(RequirementError, match=f"on {uuid(1)}: arch>=8.0 fails, as arch is 7.0"):
        check_findings(evaluate({"NVIDIA_REQUIRE_ARCH": "arch>=8.0"}, NODE, (GPUS[0], old)))
    assert check_findings(evaluate({"NVIDIA_REQUIRE_ARCH": "arch>=8.0"}, NODE, (GPUS[0],))) == ()


def test_each_gpu_may_meet_another_term() -> None:
    gpus = (gpu(0, brand="Tesla"), gpu(1, brand="GeForce", compute_capability="8.9"))
    assert check_findings(evaluate({"NVIDIA_REQUIRE_X": "brand=tesla arch>=8.9"}, NODE, gpus)) == ()


def test_every_variable_must_be_met() -> None:
    with pytest.raises(RequirementError, match="NVIDIA_REQUIRE_B is not met"):
        check_findings(evaluate({"NVIDIA_REQUIRE_A": "cuda>=1", "NVIDIA_REQUIRE_B": "cuda>=99"}, NODE, GPUS))


def test_without_a_gpu_the_driver_alone_is_looked_at_once() -> None:
    assert check_findings(evaluate({"NVIDIA_REQUIRE_A": "cuda>=12 "}, NODE, ())) == ()
    assert check_findings(evaluate({"NVIDIA_REQUIRE_A": "arch>=99"}, NODE, ())) == (
        "NVIDIA_REQUIRE_A: arch is not known and counts as met",
    )
    with pytest.raises(RequirementError, match="NVIDIA_REQUIRE_A is not met: cuda>=99"):
        check_findings(evaluate({"NVIDIA_REQUIRE_A": "cuda>=99"}, NODE, ()))


def test_what_nobody_knows_counts_as_met_and_is_noted() -> None:
    blind = inventory(cuda_version="", driver_version="unheard")
    gpus = (gpu(0, brand="", compute_capability=""), gpu(1, brand="", compute_capability=""))
    notes = check_findings(evaluate({"NVIDIA_REQUIRE_A": "cuda>=99,driver>1,arch>=99,brand=grid"}, blind, gpus))
    assert notes == tuple(
        f"NVIDIA_REQUIRE_A: {name} is not known and counts as met" for name in ("cuda", "driver", "arch", "brand")
    )


def test_findings_tell_of_every_gpu_and_variable() -> None:
    found = evaluate({"NVIDIA_REQUIRE_A": "cuda>=99", "NVIDIA_REQUIRE_B": "cuda>=1"}, NODE, GPUS[:2])
    assert [(each.variable, each.gpu, each.is_met) for each in found] == [
        ("NVIDIA_REQUIRE_A", uuid(0), False),
        ("NVIDIA_REQUIRE_A", uuid(1), False),
        ("NVIDIA_REQUIRE_B", uuid(0), True),
        ("NVIDIA_REQUIRE_B", uuid(1), True),
    ]


@pytest.mark.parametrize(
    ("environment", "requirements"),
    [
        pytest.param({}, {}, id="none"),
        pytest.param({"NVIDIA_REQUIRE_CUDA": "cuda>=1"}, {"NVIDIA_REQUIRE_CUDA": "cuda>=1"}, id="one"),
        pytest.param({"NVIDIA_REQUIRE_": "cuda>=1"}, {"NVIDIA_REQUIRE_": "cuda>=1"}, id="the prefix alone"),
        pytest.param({"NVIDIA_REQUIREMENT": "x", "MY_NVIDIA_REQUIRE_X": "x"}, {}, id="other names"),
        pytest.param({"NVIDIA_REQUIRE_JETPACK": "csv-mounts=all"}, {}, id="Jetson's"),
        pytest.param({"NVIDIA_REQUIRE_JETPACK_HOST_MOUNTS": "base-only"}, {}, id="Jetson's others"),
        pytest.param({"CUDA_VERSION": "9.0.176"}, {"CUDA_VERSION": "cuda>=9.0"}, id="a legacy image"),
        pytest.param(
            {"CUDA_VERSION": "9.4294967295.4294967296"}, {"CUDA_VERSION": "cuda>=9.4294967295"}, id="of 32 bits"
        ),
        pytest.param({"CUDA_VERSION": "v9"}, {"CUDA_VERSION": "cuda>=9"}, id="a legacy image's short version"),
        pytest.param(
            {"CUDA_VERSION": "9.0", "NVIDIA_REQUIRE_CUDA": "cuda>=8"},
            {"NVIDIA_REQUIRE_CUDA": "cuda>=8"},
            id="a new one",
        ),
        pytest.param(
            {"CUDA_VERSION": "9.0", "NVIDIA_REQUIRE_ARCH": "arch>=3"},
            {"NVIDIA_REQUIRE_ARCH": "arch>=3", "CUDA_VERSION": "cuda>=9.0"},
            id="a legacy image with another requirement",
        ),
        pytest.param({"NVIDIA_REQUIRE_CUDA": "x", "NVIDIA_DISABLE_REQUIRE": "true"}, {}, id="switched off"),
        pytest.param({"NVIDIA_REQUIRE_CUDA": "x", "NVIDIA_DISABLE_REQUIRE": "1"}, {}, id="switched off by 1"),
        pytest.param(
            {"NVIDIA_REQUIRE_CUDA": "x", "NVIDIA_DISABLE_REQUIRE": "yes"}, {"NVIDIA_REQUIRE_CUDA": "x"}, id="yes is no"
        ),
        pytest.param(
            {"NVIDIA_REQUIRE_CUDA": "x", "NVIDIA_DISABLE_REQUIRE": ""}, {"NVIDIA_REQUIRE_CUDA": "x"}, id="empty is no"
        ),
    ],
)
def test_requirements_of_an_image(environment: dict[str, str], requirements: dict[str, str]) -> None:
    assert find_requirements(environment, is_disabled=False) == requirements


def test_the_node_can_switch_requirements_off() -> None:
    assert find_requirements({"NVIDIA_REQUIRE_CUDA": "cuda>=99", "CUDA_VERSION": "x"}, is_disabled=True) == {}


@pytest.mark.parametrize(
    "version",
    [
        "nine", "9.x", ".", "9.", "\ud800", "²", "9.0.x", "9.0.176.", "9.0.176.1", "9.0.176foo", "9.0. 176", "9..0",
        "9.0 and more", "9.0.176-rc1", "-9", "+9", "vv9", "v",
        "9.4294967296", "4294967296.0", "09.0", "9.00", "9.0.01",
    ],
)  # fmt: skip
def test_a_cuda_version_of_another_form_is_refused(version: str) -> None:
    with pytest.raises(RequestError, match=r"CUDA_VERSION .* is no version"):
        find_requirements({"CUDA_VERSION": version}, is_disabled=False)


def test_requirements_of_a_megabyte_are_refused_unread() -> None:
    with pytest.raises(RequestError, match="longer than 64 KiB"):
        find_requirements({"NVIDIA_REQUIRE_CUDA": "cuda>=1 " * (1 << 17)}, is_disabled=False)
