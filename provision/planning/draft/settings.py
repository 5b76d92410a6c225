"""Reads back what grapnel wrote for the node daemon: node.json, NVIDIA's form of settings, device classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from provision.planning.draft.files import read_object
from provision.planning.draft.model import default_of
from provision.planning.render.device_classes import DECLARED_PATH, class_path, parse_declared
from provision.planning.render.node_config import NODE_CONFIG_PATH
from provision.planning.render.nvidia_config import DECLARED_CONFIGS, NVIDIA_CONFIG_PATH, named_config_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.fleet.facts.node import NodeFacts

Setting = tuple[str, object, str]
_KEYS: Final = (
    "interface", "resource", "kubeletRoot", "metricsAddress", "kubernetesApi", "labels", "nodeFeatureNamespace",
    "memoryLimits", "memoryOveruse", "overuseGraceSeconds", "dynamicMig", "computeDomains",
)  # fmt: skip


def daemon_settings(facts: NodeFacts) -> Iterator[Setting]:
    """Yield keys of ``plugin`` that are not their defaults, with their values and the file; values are not checked."""
    settings = (*_of_node(facts), *_of_nvidia(facts), *_configs(facts), *_device_classes(facts))
    yield from (each for each in settings if each[1] and each[1] != default_of(("plugin", each[0])))


def _of_node(facts: NodeFacts) -> Iterator[Setting]:
    config = read_object(facts.content(NODE_CONFIG_PATH))
    yield from ((key, config.get(key), NODE_CONFIG_PATH) for key in _KEYS)
    units = config.get("memoryUnits")
    if isinstance(units, list):
        yield "memoryUnits", [_units(each) for each in units if isinstance(each, dict)], NODE_CONFIG_PATH


def _units(units: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in units.items() if (key, value) != ("devices", "all")}


def _of_nvidia(facts: NodeFacts) -> Iterator[Setting]:
    yield from ((key, value, NVIDIA_CONFIG_PATH) for key, value in _said(facts, NVIDIA_CONFIG_PATH).items())


def _configs(facts: NodeFacts) -> Iterator[Setting]:
    """Yield the configurations that a label chooses from, and which one counts without it."""
    names = parse_declared(facts.content(DECLARED_CONFIGS))
    texts = {name: named_config_path(name) for name in names if facts.content(named_config_path(name)) is not None}
    said = {name: {key: value for key, value in _said(facts, path).items() if value} for name, path in texts.items()}
    yield "configs", said, DECLARED_CONFIGS
    yield "defaultConfig", read_object(facts.content(NODE_CONFIG_PATH)).get("nvidiaConfigDefault"), NODE_CONFIG_PATH


def _said(facts: NodeFacts, path: str) -> dict[str, object]:
    """Return what a file of NVIDIA's form says under the declaration's own names."""
    config = read_object(facts.content(path))
    flags = config.get("flags")
    flags = flags if isinstance(flags, dict) else {}
    plugin = flags.get("plugin")
    policy = plugin.get("sharedDevicesAllocationPolicy") if isinstance(plugin, dict) else None
    return {
        "migStrategy": flags.get("migStrategy"),
        "sharedDevicesAllocationPolicy": policy,
        "resources": config.get("resources"),
        "sharing": config.get("sharing"),
    }


def _device_classes(facts: NodeFacts) -> Iterator[Setting]:
    names = parse_declared(facts.content(DECLARED_PATH))
    texts = {name: facts.content(class_path(name)) for name in names}
    classes = [{"name": name, "content": text} for name, text in texts.items() if text is not None]
    yield "deviceClasses", classes, DECLARED_PATH
