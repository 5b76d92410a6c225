"""Opaque configs of NVIDIA's form: which one counts for a device, and what is refused with its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from plugin.dra.configs import (
    API_VERSION,
    AS_IT_IS,
    Ceilings,
    DeviceConfig,
    config_of,
    find_configs,
    parse_quantity,
    parse_recorded,
)

if TYPE_CHECKING:
    from collections.abc import Callable

DRIVER, UUID = "gpu.nvidia.com", "GPU-0"
CLASS, CLAIM = "FromClass", "FromClaim"


def row(sharing: object, *requests: str, kind: str = "GpuConfig", source: str = CLAIM, **more: Any) -> dict[str, Any]:
    parameters = {"apiVersion": API_VERSION, "kind": kind, **({} if sharing is None else {"sharing": sharing}), **more}
    named = {"requests": list(requests)} if requests else {}
    return {"source": source, **named, "opaque": {"driver": DRIVER, "parameters": parameters}}


def sliced(interval: str, *requests: str, **keys: Any) -> dict[str, Any]:
    return row({"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}, *requests, **keys)


def by_mps(*requests: str, kind: str = "GpuConfig", **limits: object) -> dict[str, Any]:
    return row({"strategy": "MPS", "mpsConfig": limits}, *requests, kind=kind)


def found(*rows: dict[str, Any], request: str = "gpu", device_type: str = "gpu") -> DeviceConfig:
    return config_of(find_configs(rows, DRIVER), request, device_type, UUID)


# As in NVIDIA's demo/specs/quickstart/v1 (gpu-test5, gpu-test-mps) and tests/bats/specs (gpu-timeslicing, gpu-mps,
# gpu-simple-mig-ts), and what they leave out.
@pytest.mark.parametrize(
    ("config", "device_type", "expected"),
    [
        (sliced("Long", "gpu"), "gpu", DeviceConfig("Long")),
        (sliced("Short", "gpu"), "gpu", DeviceConfig("Short")),
        (sliced("Default"), "gpu", AS_IT_IS),
        (row({"strategy": "TimeSlicing"}), "gpu", AS_IT_IS),
        (row({"strategy": "TimeSlicing", "mpsConfig": None, "timeSlicingConfig": {}}), "gpu", AS_IT_IS),
        (row({"strategy": "TimeSlicing"}, "gpu", kind="MigDeviceConfig"), "mig", AS_IT_IS),
        (row(None), "gpu", AS_IT_IS),
        (row({"strategy": "MPS"}), "gpu", DeviceConfig(mps=Ceilings())),
        (
            by_mps("gpu", defaultActiveThreadPercentage=50, defaultPinnedDeviceMemoryLimit="10Gi"),
            "gpu",
            DeviceConfig(mps=Ceilings(50, 10240)),
        ),
        (
            by_mps(defaultPinnedDeviceMemoryLimit="10Gi", defaultPerDevicePinnedMemoryLimit={"0": "5Gi"}),
            "gpu",
            DeviceConfig(mps=Ceilings(100, 5120)),
        ),
        (
            by_mps(defaultPerDevicePinnedMemoryLimit={UUID: 2**30}, multiUser=False),
            "gpu",
            DeviceConfig(mps=Ceilings(100, 1024)),
        ),
    ],
)
def test_what_nvidias_claims_ask_for(config: dict[str, Any], device_type: str, expected: DeviceConfig) -> None:
    assert found(config, device_type=device_type) == expected
    if expected != AS_IT_IS:
        assert parse_recorded(expected.to_json()) == expected


@pytest.mark.parametrize(
    ("rows", "interval"),
    [
        ([sliced("Long", source=CLAIM), sliced("Short", source=CLASS)], "Long"),  # whatever their order
        ([sliced("Long"), sliced("Short")], "Short"),
        ([sliced("Long", "gpu"), sliced("Short", "other")], "Long"),
        ([sliced("Long", "other")], ""),
        ([sliced("Long"), row(None, kind="MigDeviceConfig")], "Long"),  # not for this type of device
        ([sliced("Long", source=CLASS), row(None, "gpu")], ""),
    ],
)
def test_the_latest_of_the_claim_counts_else_that_of_its_class(rows: list[dict[str, Any]], interval: str) -> None:
    assert found(*rows).interval == interval


@pytest.mark.parametrize(("named", "interval"), [("gpu", "Long"), ("gpu/big", "Long"), ("gpu/small", "")])
def test_a_config_may_name_an_alternative_or_all_of_them(named: str, interval: str) -> None:
    assert found(sliced("Long", named), request="gpu/big").interval == interval


def test_configs_of_other_drivers_are_theirs() -> None:
    assert find_configs([{"source": CLAIM, "opaque": {"driver": "dra.net", "parameters": "any"}}], DRIVER) == ()


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (row({"strategie": "MPS"}), "sharing.strategie is not known"),
        (row({"strategy": "TimeSlicing"}, iommu={}), "iommu is not known"),
        (row({}), "strategy is missing"),
        (row({"strategy": "Fair"}), "strategy must be one of TimeSlicing, MPS"),
        (row("all"), "sharing must be an object"),
        (sliced("Longer"), "interval must be one of"),
        (sliced("Long", kind="MigDeviceConfig"), "sharing.timeSlicingConfig is not known"),
        (row({"strategy": "TimeSlicing", "mpsConfig": {}}), "sharing.mpsConfig beside the strategy TimeSlicing"),
        (row({"strategy": "MPS", "timeSlicingConfig": {}}), "sharing.timeSlicingConfig beside"),
        (by_mps(defaultActiveThreadPercentage=0), "defaultActiveThreadPercentage must be a whole number from 1 to 100"),
        (by_mps(defaultActiveThreadPercentage="50"), "must be a whole number"),
        (by_mps(defaultPinnedDeviceMemoryLimit="1Ki"), "less than a MiB"),
        (by_mps(defaultPinnedDeviceMemoryLimit="much"), "an amount"),
        (by_mps(defaultPerDevicePinnedMemoryLimit={"1": "1Gi"}), "names '1'"),
        (by_mps(multiUser=True), "multiUser"),
        (by_mps(threads=1), "sharing.mpsConfig.threads is not known"),
        (by_mps(kind="MigDeviceConfig"), "MPS on a MIG device"),
        (row(None, kind="VfioDeviceConfig"), "virtual machines"),
        (row(None, kind="ComputeDomainChannelConfig"), "ComputeDomainChannelConfig"),
        (sliced("Long", "gpu", kind="GpuConfig", source="FromNowhere"), "source must be one of"),
    ],
)
def test_what_is_not_served_is_refused_with_its_place(config: dict[str, Any], words: str) -> None:
    is_mig = config["opaque"]["parameters"]["kind"] == "MigDeviceConfig"
    with pytest.raises(ValueError, match=words):
        found(config, device_type="mig" if is_mig else "gpu")


@pytest.mark.parametrize("name", ["\ud800", "a\nb\x9b31m", "x" * 9000], ids=["no text", "controls", "long"])
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(lambda name: row(None, **{name: {}}), id="a key"),
        pytest.param(lambda name: by_mps(**{name: 1}), id="a key of a section"),
        pytest.param(
            lambda name: by_mps(defaultPerDevicePinnedMemoryLimit={name: ""}), id="a device without an amount"
        ),
        pytest.param(lambda name: by_mps(defaultPerDevicePinnedMemoryLimit={name: "1Gi"}), id="a device"),
    ],
)
def test_what_an_author_writes_is_told_in_plain_characters(config: Callable[[str], dict[str, Any]], name: str) -> None:
    with pytest.raises(ValueError, match=r"config of its|names") as refused:
        found(config(name))
    told = str(refused.value)
    assert told.isascii()
    assert told.isprintable()
    assert len(told) < 500


def test_the_place_names_class_or_claim_and_the_request() -> None:
    with pytest.raises(ValueError, match=r"^the config of its class for gpu is not served: shring is not known$"):
        found(row(None, "gpu", source=CLASS, shring={}))


def test_a_config_that_names_a_request_is_for_the_type_of_its_device() -> None:
    with pytest.raises(ValueError, match="GpuConfig is not for a device of type mig"):
        found(sliced("Long", "gpu"), device_type="mig")


@pytest.mark.parametrize(
    ("text", "amount"),
    [("10Gi", 10 * 2**30), ("1.5Gi", 3 * 2**29), ("2k", 2000), ("1e9", 10**9), ("500m", 1), (7, 7), ("+1", 1)],
)
def test_amounts_are_those_of_kubernetes(text: object, amount: int) -> None:
    assert parse_quantity(text) == amount


@pytest.mark.parametrize("text", ["", "-1", "Gi", "1GiB", "9999999999Ei", None, True, 1.5, "1e99"])
def test_what_is_no_amount_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="amount"):
        parse_quantity(text)
