"""Expressions in CEL about devices: what they come to is what the scheduler's own evaluation comes to."""

from __future__ import annotations

import msgspec
import pytest

from provision.cluster.kubernetes.nodes.selectors import NotJudgedError, NotThereError, Seen, parse
from provision.cluster.kubernetes.objects.claims import DescribedDevice

GPU = "device.attributes['gpu.nvidia.com']"
MEMORY = "device.capacity['gpu.nvidia.com'].memory"
DEVICE = {
    "name": "gpu-0",
    "attributes": {
        "type": {"string": "gpu"},
        "index": {"int": 3},
        "isFast": {"bool": True},
        "driverVersion": {"version": "550.163.1"},
        "candidate": {"version": "1.0.0-rc.2"},
        "names": {"strings": ["a", "b"]},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
    },
    "capacity": {"memory": {"value": "80Gi"}},
}
TRUE = (
    f"device.driver == 'gpu.nvidia.com' && {GPU}.type == \"gpu\"",
    f"{GPU}['type'] in ['mig', 'gpu']",
    f"{GPU}.type != 'mig'",
    f"!({GPU}.type == 'mig' || {GPU}.index < 3)",
    f"{GPU}.index >= 3 && {GPU}.index > -1 && {GPU}.isFast",
    f"{MEMORY}.compareTo(quantity('80Gi')) == 0 && {MEMORY}.isLessThan(quantity('100G'))",
    f"{MEMORY}.isLessThan(quantity('1Pi')) && {MEMORY}.isGreaterThan(quantity('80e9'))",
    f"{GPU}.driverVersion.compareTo(semver('550.54.0')) > 0",
    f"{GPU}.candidate.isLessThan(semver('1.0.0')) && {GPU}.candidate.isGreaterThan(semver('1.0.0-rc.1'))",
    f"'type' in {GPU} && !('missing' in {GPU}) && !('x' in device.attributes['nowhere'])",
    f"has({GPU}.type) && !has({GPU}.missing)",
    "device.attributes['resource.kubernetes.io'].pcieRoot.startsWith('pci')",
    f"{GPU}.missing == 'x' || true",
    "!device.allowMultipleAllocations",
    "r'\\d' == '\\\\d' || false",
)
FALSE = (
    f"{MEMORY}.isGreaterThan(quantity('1P'))",
    f"{GPU}.type == 'mig'",
    f"{GPU}.missing == 'x' && false",
    f"{GPU}.type.contains('x') || {GPU}.type.endsWith('x')",
    f"{MEMORY}.isGreaterThan(quantity('80Gi'))",
)
NOT_JUDGED = (
    f"{GPU}.type.matches('g.*')",
    f"{GPU}.index + 1 == 4",
    f"{GPU}.names.exists(x, x == 'a')",
    f"{GPU}.names == 'a'",
    f"cel.bind(gpu, {GPU}, gpu.type == 'gpu')",
    f"{GPU}.index > 1 ? true : false",
    f"{GPU}.index == 3.0",
    f"{GPU}.index == 'gpu'",
    f"{GPU}.type in 'gpu'",
    f"{GPU}.type",
    "'\\n' == 'n'",
    "device.driver == 'open",
    "",
    "(" * 9000,
    "!" * 9000,
    "device" + ".a" * 4000,
    "1" * 5000 + " == 1",
    f"{GPU}.driverVersion.isLessThan(semver('{'1' * 5000}.0.0'))",
    f"{GPU}.driverVersion.isLessThan(semver('1.0.0-{'1' * 5000}'))",
    f"{GPU}.driverVersion.isLessThan(semver('0550.1.0'))",
    f"['type'] in {GPU}",
    f"{GPU} in device.attributes",
)


@pytest.fixture
def seen() -> Seen:
    return Seen.of(msgspec.convert(DEVICE, DescribedDevice), "gpu.nvidia.com")


@pytest.mark.parametrize("expression", TRUE)
def test_what_is_met(seen: Seen, expression: str) -> None:
    assert parse(expression).holds(seen)


@pytest.mark.parametrize("expression", FALSE)
def test_what_is_not_met(seen: Seen, expression: str) -> None:
    assert not parse(expression).holds(seen)


@pytest.mark.parametrize("expression", [pytest.param(each, id=each[:40]) for each in NOT_JUDGED])
def test_what_is_of_another_form_is_not_judged(seen: Seen, expression: str) -> None:
    with pytest.raises(NotJudgedError):
        parse(expression).holds(seen)


def test_what_a_device_has_not_is_no_answer(seen: Seen) -> None:
    for expression in (
        f"{GPU}.missing == 'x'",
        f"{GPU}.missing == 'x' || {GPU}.type == 'mig'",
        "device.attributes['y'].x == 1",
    ):
        with pytest.raises(NotThereError):
            parse(expression).holds(seen)


def test_parts_that_all_have_to_be_are_known_with_what_they_look_at(seen: Seen) -> None:
    parts = parse(f"({GPU}.type == 'gpu' && {MEMORY}.isGreaterThan(quantity('9Gi'))) && {GPU}.index == 4").all_of

    assert [each.text for each in parts] == [
        f"{GPU}.type == 'gpu'",
        f"{MEMORY}.isGreaterThan(quantity('9Gi'))",
        f"{GPU}.index == 4",
    ]
    assert [seen.told(each) for each in parts] == ["type is gpu", "memory is 80Gi", "index is 3"]
