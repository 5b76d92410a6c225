"""How a node's labels are made and where they go, by node.json and NVIDIA's settings of feature discovery. Pure.

`labels` of node.json says through what they reach the Node. NVIDIA's `useNodeFeatureAPI` and `outputFile` say the same
in their words: what contradicts is refused, for else two agents of one node would be told two things.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plugin.settings.model import LabelSettings
from plugin.settings.node_config import LABELS_AUTO, LABELS_FEATURE, LABELS_FILE, LABELS_NODE
from plugin.settings.nvidia.kinds import duration_s

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugin.settings.node_config import NodeConfig
    from plugin.settings.nvidia.merge import Effective

_API, _FILE = "flags.useNodeFeatureAPI", "flags.gfd.outputFile"
_LEAST_PAUSE_S = 1.0


def plan_labels(config: NodeConfig, settings: Mapping[str, Effective]) -> LabelSettings:
    """Return what the settings come to. NVIDIA's program ends after one labelling; here the daemon goes on."""
    file, target = settings[_FILE], _target(config, settings)
    pause_s = duration_s(str(settings["flags.gfd.sleepInterval"].value))
    is_once = settings["flags.gfd.oneshot"].value is True or pause_s is None
    is_file = settings[_API].value is not True and target in {LABELS_AUTO, LABELS_FILE}
    return LabelSettings(
        file=Path(str(file.value)) if is_file else None,
        is_file_wanted=is_file and (file.is_given or settings[_API].value is False or target == LABELS_FILE),
        pause_s=None if is_once or pause_s is None else max(pause_s, _LEAST_PAUSE_S),
        has_timestamp=not settings["flags.gfd.noTimestamp"].value,
        machine_file=str(settings["flags.gfd.machineTypeFile"].value or ""),
        is_on_node=target in {LABELS_AUTO, LABELS_NODE},
        feature_namespace=config.node_feature_namespace if target == LABELS_FEATURE else "",
    )


def _target(config: NodeConfig, settings: Mapping[str, Effective]) -> str:
    if config.labels == LABELS_AUTO and settings[_API].value and config.kubernetes_api:
        return LABELS_FEATURE
    return config.labels


def label_conflicts(config: NodeConfig, settings: Mapping[str, Effective]) -> Iterator[str]:
    """Yield what cannot be meant."""
    api, file, target = settings[_API], settings[_FILE], config.labels
    if target in {LABELS_NODE, LABELS_FEATURE}:
        if not config.kubernetes_api:
            yield f'labels is "{target}", and kubernetesApi is not set: it says how the Kubernetes API is reached'
        if file.is_given:
            yield f'{file.origin}: outputFile leaves a file, and labels is "{target}": leave one of them out'
    if target in {LABELS_NODE, LABELS_FILE} and api.value is True:
        yield f'{api.origin}: useNodeFeatureAPI makes a NodeFeature object, and labels is "{target}"'
    if target == LABELS_FEATURE and api.value is False:
        yield f'{api.origin}: useNodeFeatureAPI is false, and labels is "{target}"'


def label_warnings(config: NodeConfig, settings: Mapping[str, Effective]) -> Iterator[str]:
    """Yield what has not the effect that an administrator may expect."""
    api = settings[_API]
    if api.value is True and config.labels == LABELS_AUTO and not config.kubernetes_api:
        yield f"{api.origin}: useNodeFeatureAPI leaves no file, and labels reach nobody: kubernetesApi is not set"
