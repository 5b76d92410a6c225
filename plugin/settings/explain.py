"""Every setting's value and where it came from, for people and scripts. Pure; printing is the command line's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.devices.mig import MIXED
from plugin.devices.naming import explain_change
from plugin.settings.node_config import KEYS
from plugin.settings.nvidia.kinds import show
from plugin.settings.nvidia.merge import DEFAULT
from plugin.settings.nvidia.table import BY_NAME, NOTHING_TO_REQUIRE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugin.devices.naming import NamePattern
    from plugin.settings.node_config import NodeConfig
    from plugin.settings.nvidia.merge import Effective
    from plugin.settings.resolve import Resolved


@dataclass(frozen=True)
class Line:
    """One setting. `effect` says why a value changes nothing; "" where it has its effect."""

    name: str
    value: object
    origin: str
    effect: str = ""


def explain(resolved: Resolved, settings: Mapping[str, Effective], *, has_file: bool) -> tuple[Line, ...]:
    """Return a line for each key of node.json, each setting of NVIDIA's plugin, and each resource's pattern."""
    return (*_own_keys(resolved, has_file=has_file), *_settings(resolved.config, settings), *_patterns(resolved.config))


def _own_keys(resolved: Resolved, *, has_file: bool) -> Iterator[Line]:
    config = resolved.config
    effects = {
        "resource": "resources.gpus names the resources" if config.settings.patterns else "",
        "nvidiaConfigFile": "" if has_file else "there is no such file",
    }
    values = config.to_json()
    for key in KEYS:
        origin = resolved.origins.get(key) or (config.origin if key in config.given else DEFAULT)
        yield Line(key, values[key], origin, effects.get(key, ""))


def _settings(config: NodeConfig, settings: Mapping[str, Effective]) -> Iterator[Line]:
    followed = {
        "flags.nvidiaDevRoot": (str(config.dev_root.parent), "devRoot"),
        "flags.plugin.containerDriverRoot": (str(config.settings.driver_root), "flags.nvidiaDriverRoot"),
        "flags.plugin.passDeviceSpecs": (config.settings.answers.has_nodes, "flags.plugin.deviceListStrategy"),
        "flags.useNodeFeatureAPI": (bool(config.settings.labels.feature_namespace), "labels"),
        "flags.gfd.machineTypeFile": (str(config.sys_root / "class/dmi/id/product_name"), "sysRoot"),
        "configFolder": (str(config.nvidia_config_folder or ""), "nvidiaConfigFolder"),
        "defaultConfig": (config.nvidia_config_default, "nvidiaConfigDefault"),
        "kubeletSocket": (str(config.kubelet_root / "device-plugins/kubelet.sock"), "kubeletRoot"),
    }
    for name, effective in settings.items():
        value: object = list(effective.value) if isinstance(effective.value, tuple) else effective.value
        origin = effective.origin
        if value is None:
            value, follows = followed[name]
            origin = f"follows {follows}"
        is_idle = name == "imex.required" and not settings["imex.channelIDs"].value
        yield Line(name, value, origin, NOTHING_TO_REQUIRE if is_idle else BY_NAME[name].no_effect)


def _patterns(config: NodeConfig) -> Iterator[Line]:
    for number, pattern in enumerate(config.settings.patterns):
        yield Line(f"resources.gpus[{number}]", f"{pattern.pattern} -> {pattern.resource}", pattern.origin)
    for number, pattern in enumerate(config.settings.mig_patterns):
        effect = "" if config.settings.mig_strategy == MIXED else f"it takes migStrategy {MIXED}"
        yield Line(f"resources.mig[{number}]", f"{pattern.pattern} -> {pattern.resource}", pattern.origin, effect)
    for number, rule in enumerate(config.settings.shares):
        yield Line(f"shares[{number}]", f"{rule.resource} -> {rule.describe()} as {rule.shown_as}", rule.origin)


def notes_on_patterns(patterns: tuple[NamePattern, ...], models: tuple[str, ...] | None) -> tuple[str, ...]:
    """Return what anchored patterns change on this node; of every pattern that may, where its GPUs are not known."""
    if models is None:
        return tuple(f"{pattern.describe()}: {pattern.remedy()}" for pattern in patterns if not pattern.is_open)
    return tuple(note for model in models if (note := explain_change(model, patterns)))


def show_cell(value: object) -> str:
    """Return a value for a column of a table."""
    if value is None or value in ("", []):
        return "-"
    return (
        show(tuple(value)) if isinstance(value, list) else show(value) if isinstance(value, (bool, str)) else str(value)
    )
