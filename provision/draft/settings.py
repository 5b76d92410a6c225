"""Reads back what grapnel wrote for the node daemon: node.json, NVIDIA's form of settings, device classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from provision.draft.files import read_object
from provision.draft.model import default_of
from provision.render.device_classes import DECLARED_PATH, class_path, parse_declared
from provision.render.node_config import NODE_CONFIG_PATH
from provision.render.nvidia_config import NVIDIA_CONFIG_PATH

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.fleet.facts import NodeFacts

Setting = tuple[str, object, str]
_KEYS: Final = (
    "resource", "kubeletRoot", "metricsAddress", "kubernetesApi", "labels", "nodeFeatureNamespace", "memoryLimits",
    "memoryOveruse", "overuseGraceSeconds",
)  # fmt: skip


def daemon_settings(facts: NodeFacts) -> Iterator[Setting]:
    """Yield keys of ``plugin`` that are not their defaults, with their values and the file; values are not checked."""
    settings = (*_of_node(facts), *_of_nvidia(facts), *_device_classes(facts))
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
    """Yield what NVIDIA's form says under the declaration's own names."""
    config = read_object(facts.content(NVIDIA_CONFIG_PATH))
    flags = config.get("flags")
    flags = flags if isinstance(flags, dict) else {}
    plugin = flags.get("plugin")
    policy = plugin.get("sharedDevicesAllocationPolicy") if isinstance(plugin, dict) else None
    given = {
        "migStrategy": flags.get("migStrategy"),
        "sharedDevicesAllocationPolicy": policy,
        "resources": config.get("resources"),
        "sharing": config.get("sharing"),
    }
    yield from ((key, value, NVIDIA_CONFIG_PATH) for key, value in given.items())


def _device_classes(facts: NodeFacts) -> Iterator[Setting]:
    names = parse_declared(facts.content(DECLARED_PATH))
    texts = {name: facts.content(class_path(name)) for name in names}
    classes = [{"name": name, "content": text} for name, text in texts.items() if text is not None]
    yield "deviceClasses", classes, DECLARED_PATH
