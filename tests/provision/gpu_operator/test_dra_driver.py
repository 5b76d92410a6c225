"""What NVIDIA's DRA driver was told, by values of its chart, beside the GPU operator or alone.

`dra_driver_values.json` has keys and defaults of its values.yaml (kubernetes-sigs/dra-driver-nvidia-gpu at 0f5a1bc2).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from provision.base.errors import ExitCode
from provision.cli import main
from provision.planning.gpu_operator.convert import DRA_DRIVER, convert
from provision.planning.gpu_operator.model import Verdict
from provision.planning.gpu_operator.read import parse_objects, parse_value, sort_objects
from tests.provision.gpu_operator.samples import changed, policy, values

if TYPE_CHECKING:
    from provision.planning.gpu_operator.model import Conversion

CHART: dict[str, Any] = json.loads(Path(__file__).with_name("dra_driver_values.json").read_text())
BY_CLAIMS = {
    "plugin.enabled": True,
    "plugin.interface": "dra",
    "plugin.kubernetesApi": "/etc/kubernetes/kubelet.conf",
}


def read(*documents: dict[str, Any]) -> Conversion:
    text = "\n---\n".join(json.dumps(each) for each in documents).encode()
    return convert(sort_objects(parse_objects(text, "values.yaml")), parse_value)


def missing(found: Conversion) -> dict[str, str]:
    return {key.path: key.why for key in found.of(Verdict.MISSING) if key.source == DRA_DRIVER}


def test_the_chart_s_defaults_alone_are_claims_with_the_host_s_driver() -> None:
    found = read(CHART)
    assert values(found) == {**BY_CLAIMS, "driver.enabled": False, "runtime.adopt": True}
    assert list(missing(found)) == ["resources.computeDomains.enabled"]
    assert "resources.gpus.enabled=false" in missing(found)["resources.computeDomains.enabled"]


def test_beside_the_operator_its_device_plugin_that_is_off_is_claims() -> None:
    found = read(policy(devicePlugin__enabled=False), CHART)
    assert values(found).items() >= BY_CLAIMS.items()
    assert values(found)["driver.version"] == "550.163.01"


@pytest.mark.parametrize(
    ("changes", "expected", "named"),
    [
        ({"resources.gpus": {"enabled": False}}, {}, {"resources.computeDomains.enabled"}),
        ({"resources.computeDomains": {"enabled": False, "imex": {"mode": "hostManaged"}}}, BY_CLAIMS, set()),
        ({"consumableShares": "4"}, BY_CLAIMS, {"consumableShares", "resources.computeDomains.enabled"}),
        (
            {"kubeletPlugin.kubeletPluginsDirectoryPath": "/data/kubelet/plugins"},
            {**BY_CLAIMS, "plugin.kubeletRoot": "/data/kubelet"},
            {"resources.computeDomains.enabled"},
        ),
        (
            {"featureGates": {"DynamicMIG": True, "NVMLDeviceHealthCheck": True, "MPSSupport": True}},
            BY_CLAIMS,
            {"featureGates.DynamicMIG", "resources.computeDomains.enabled"},
        ),
        (
            {"kubeletPlugin.nodeSelector": {"pool": "a"}},
            BY_CLAIMS,
            {"kubeletPlugin.nodeSelector.pool", "resources.computeDomains.enabled"},
        ),
    ],
    ids=["no GPUs", "no domains", "shares", "another kubelet", "gates", "some nodes"],
)
def test_a_value_is_carried_over_or_named(
    changes: dict[str, Any], expected: dict[str, object], named: set[str]
) -> None:
    found = read(changed(CHART, changes))
    assert values(found) == {**expected, "driver.enabled": False, "runtime.adopt": True}
    assert set(missing(found)) == named


def test_a_gate_of_mig_is_led_to_the_key_that_does_the_same() -> None:
    found = read(changed(CHART, {"featureGates": {"DynamicMIG": True}}))
    assert "plugin.dynamicMig: true" in missing(found)["featureGates.DynamicMIG"]


def test_what_people_set_alone_is_recognised() -> None:
    found = read({"resources": {"computeDomains": {"enabled": False}}, "gpuResourcesEnabledOverride": True})
    assert values(found).items() >= BY_CLAIMS.items()


def test_the_file_that_is_written_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, file = tmp_path / "values.yaml", tmp_path / "stack.yaml"
    source.write_text(json.dumps(CHART))
    assert main(["init", "-f", str(file), "--from-gpu-operator", str(source)]) == ExitCode.DONE
    assert "interface: dra" in file.read_text()
    capsys.readouterr()
    assert main(["check", "-f", str(file)]) == ExitCode.DONE
