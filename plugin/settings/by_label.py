"""Which of the files of one folder counts on this node: a label of its Node names it. Pure.

The rules are those of the config-manager beside NVIDIA's plugin (`cmd/config-manager/main.go`): the label's value, else
the default, else the first fallback that finds something. Where none does, there is no file of this folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import ConfigError
from plugin.settings.model import ByLabel
from plugin.settings.nvidia.table import FALLBACKS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.settings.node_config import NodeConfig
    from plugin.settings.nvidia.merge import Effective

NAMED, SINGLE, EMPTY = FALLBACKS
_NAME_OF_DEFAULT = "default"  # what `named` looks for
_SHOWN = 16


def plan_by_label(config: NodeConfig, settings: Mapping[str, Effective], value: str | None) -> ByLabel | None:
    """Return how the file is chosen, None where no folder is declared. NVIDIA's settings come before node.json.

    Without access to the Kubernetes API the label is not heard of.
    """
    given = settings["configFolder"].value
    folder = Path(str(given)) if given else config.nvidia_config_folder
    if folder is None:
        return None
    fallbacks = settings["configFallbacks"].value
    return ByLabel(
        folder,
        str(settings["configLabel"].value),
        str(settings["defaultConfig"].value or config.nvidia_config_default),
        tuple(map(str, fallbacks)) if isinstance(fallbacks, tuple) else (),
        value if config.kubernetes_api else None,
    )


def choose(rules: ByLabel, names: Iterable[str]) -> tuple[str, str] | None:
    """Return the file's name and who says so, None where no file of the folder counts.

    `names` are the files that there are. Raises ConfigError where there is none of the name that is given.
    """
    there = sorted(names)
    for name, origin in ((rules.value, f"label {rules.label}"), (rules.default, "the default")):
        if name:
            if name not in there:
                raise ConfigError(f"{rules.folder / name}: no such file, and {origin} names it", _hint(there))
            return name, origin
    for fallback in rules.fallbacks:
        if fallback == EMPTY:
            return None
        if fallback == NAMED and _NAME_OF_DEFAULT in there:
            return _NAME_OF_DEFAULT, f"fallback {NAMED}"
        if fallback == SINGLE and len(there) == 1:
            return there[0], f"fallback {SINGLE}"
    return None


def _hint(there: list[str]) -> str:
    return f"there are: {', '.join(there[:_SHOWN])}" if there else "there is no file at all"
