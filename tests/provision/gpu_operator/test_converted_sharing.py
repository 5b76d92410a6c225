"""What a device plugin's configuration shares, and which entry a node takes, is carried over."""

from __future__ import annotations

from typing import Any

import pytest

from plugin.base.errors import ConfigError
from plugin.settings.nvidia.document import Document, parse_document
from plugin.settings.nvidia.table import SETTINGS
from provision.planning.gpu_operator.config_maps import NODE_FILE_KEYS
from provision.planning.gpu_operator.model import Verdict
from provision.planning.gpu_operator.read import parse_value
from tests.provision.gpu_operator.samples import config_map, converted, key_of, policy, values
from tests.provision.gpu_operator.test_convert import LAYOUTS, SHARING


@pytest.mark.parametrize("order", [("name", "default"), ("default", "name")], ids=["name first", "default first"])
def test_the_key_that_chooses_an_entry_is_carried_over_with_it(order: tuple[str, ...]) -> None:
    """It was told that its ConfigMap is not among the objects, beside that ConfigMap."""

    def config(**given: str) -> dict[str, str]:
        return {key: given[key] for key in order}

    found = converted(
        policy(
            devicePlugin__config=config(name="plugin", default="shared"),
            migManager__config=config(name="layouts", default="all-1g.10gb"),
        ),
        config_map("plugin", shared=SHARING, other="version: v1"),
        config_map("layouts", config__yaml=LAYOUTS),
    )
    key = key_of(found, "spec.devicePlugin.config.default")
    assert (key.verdict, set(key.became)) == (
        Verdict.CARRIED,
        {"plugin.migStrategy", "plugin.sharing.timeSlicing"},
    )
    assert key_of(found, "spec.migManager.config.default").became == ("mig.layout",)


@pytest.mark.parametrize(
    ("path", "changes", "verdict", "word"),
    [
        pytest.param(
            "devicePlugin",
            {"devicePlugin__config": {"name": "plugin", "default": "gone"}},
            Verdict.MISSING,
            "ConfigMap plugin has no entry of that name",
            id="an entry that there is not",
        ),
        pytest.param(
            "migManager",
            {"migManager__config": {"name": "layouts", "default": "gone"}},
            Verdict.MISSING,
            "ConfigMap layouts has no layout of that name",
            id="a layout that there is not",
        ),
        pytest.param(
            "devicePlugin",
            {"devicePlugin__config": {"name": "", "default": "shared"}},
            Verdict.IDLE,
            "no ConfigMap is named",
            id="of no ConfigMap",
        ),
        pytest.param(
            "devicePlugin",
            {"devicePlugin__config": {"name": "elsewhere", "default": "shared"}},
            Verdict.MISSING,
            "not among the objects",
            id="of a ConfigMap that is not there",
        ),
        pytest.param("migManager", {}, Verdict.COVERED, "MIG stays as it is", id="of the operator's own layouts"),
    ],
)
def test_a_default_that_chooses_nothing_says_why(
    path: str, changes: dict[str, Any], verdict: Verdict, word: str
) -> None:
    maps = (config_map("plugin", shared=SHARING), config_map("layouts", config__yaml=LAYOUTS))
    key = key_of(converted(policy(**changes), *maps), f"spec.{path}.config.default")
    assert key.verdict is verdict
    assert word in key.why


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        pytest.param(
            "flags: {renameByDefault: true}",
            "`plugin.sharing.timeSlicing.renameByDefault` or `plugin.sharing.mps.renameByDefault`",
            id="renamed",
        ),
        pytest.param(
            "flags: {failRequestsGreaterThanOne: true}",
            "`plugin.sharing.timeSlicing.failRequestsGreaterThanOne`",
            id="one share alone",
        ),
        pytest.param("flags: {passDeviceSpecs: true}", "it would be flags.plugin.passDeviceSpecs", id="one level up"),
        pytest.param("flags: {colour: green}", "the device plugin does not know it here", id="unknown"),
    ],
)
def test_a_setting_that_the_device_plugin_skips_is_not_sent_to_a_file_that_refuses_it(entry: str, words: str) -> None:
    objects = (policy(devicePlugin__config={"name": "c"}), config_map("c", a=f"version: v1\n{entry}\n"))
    (key,) = [key for key in converted(*objects).keys if key.source == "ConfigMap c"]
    assert key.verdict is Verdict.MISSING
    assert words in key.why
    assert "nvidia.yaml" not in key.why
    with pytest.raises(ConfigError):
        parse_document(Document("nvidia.yaml", parse_value(entry)))


def test_what_is_sent_to_the_node_daemons_file_is_what_it_takes() -> None:
    assert set(NODE_FILE_KEYS) == {setting.name for setting in SETTINGS if setting.in_file}


def test_which_shared_gpu_a_container_gets_is_carried_over() -> None:
    text = "version: v1\nflags: {plugin: {sharedDevicesAllocationPolicy: packed}}\n"
    found = converted(policy(devicePlugin__config={"name": "c"}), config_map("c", a=text))
    assert values(found)["plugin.sharedDevicesAllocationPolicy"] == "packed"
