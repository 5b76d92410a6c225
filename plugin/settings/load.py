"""Reads everything that decides how the daemon runs: node.json, a file of NVIDIA's form, environment and flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import ConfigError, os_reason
from plugin.settings.by_label import choose, plan_by_label
from plugin.settings.node_config import DEFAULT_NVIDIA_PATH, find_config
from plugin.settings.nvidia.merge import merge, read_flags, read_variables
from plugin.settings.nvidia.table import CONFIG_FILE_FLAG, CONFIG_FILE_VARIABLE, NOT_READ
from plugin.settings.resolve import Resolved, resolve
from plugin.settings.store import read_heard_label

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugin.settings.model import ByLabel
    from plugin.settings.node_config import NodeConfig
    from plugin.settings.nvidia.document import FileSettings
    from plugin.settings.nvidia.merge import Effective


@dataclass(frozen=True)
class Invocation:
    """What a command line and an environment say. `flags`: a setting's name → the flag as it was written, its text."""

    config: Path | None
    flags: Mapping[str, tuple[str, str]]
    environment: Mapping[str, str]

    def nvidia_config(self) -> tuple[Path, str] | None:
        """Return the file of NVIDIA's form that the command line or the environment names, and which of them does."""
        flag, name = self.flags.get(CONFIG_FILE_FLAG, ("", ""))
        variable = self.environment.get(CONFIG_FILE_VARIABLE, "")
        if name or variable:
            return (Path(name), flag) if name else (Path(variable), CONFIG_FILE_VARIABLE)
        return None


@dataclass(frozen=True)
class Loaded:
    """The result, every setting's value with its origin, and whether there was a file of NVIDIA's form."""

    resolved: Resolved
    settings: Mapping[str, Effective]
    has_file: bool

    @property
    def config(self) -> NodeConfig:
        """What the daemon runs with."""
        return self.resolved.config


def load(invocation: Invocation, default_path: Path = DEFAULT_NVIDIA_PATH, *, label: str | None = None) -> Loaded:
    """Read all of it; raises ConfigError. A file must be there, unless it is the default one.

    `label` is the value of the node's label that names a file; None: the one that is remembered.
    """
    config = find_config(invocation.config)
    layers = [read_flags(invocation.flags), read_variables(invocation.environment)]
    by_label = _plan_by_label(config, merge(layers), label)
    named = (None if by_label is None else _chosen(by_label)) or invocation.nvidia_config()
    if named is not None:
        config = replace(config, nvidia_config=named[0])
    path = config.nvidia_config
    if named is None and path == default_path and not path.exists():
        path = None
    file = None if path is None else _read_file(path)
    values = {} if file is None else file.values
    settings = merge([*layers, values])
    resolved = resolve(config, settings, file)
    decided = replace(resolved.config.settings, by_label=by_label)
    resolved = replace(resolved, config=replace(resolved.config, settings=decided))
    if named is not None:
        resolved = replace(resolved, origins={**resolved.origins, "nvidiaConfigFile": named[1]})
    resolved = replace(resolved, notes=(*resolved.notes, *_not_read(invocation.environment)))
    return Loaded(resolved, settings, has_file=path is not None)


def load_to_start(invocation: Invocation) -> Loaded:
    """Do as `load` does; where the label's file cannot be used any more, as if there were no label.

    A daemon that does not start never hears of another label.
    """
    try:
        return load(invocation)
    except ConfigError as error:
        loaded = load(invocation, label="")
        if loaded.config.settings.by_label is None:
            raise
        resolved = loaded.resolved
        return replace(loaded, resolved=replace(resolved, notes=(*resolved.notes, error.message)))


def _plan_by_label(config: NodeConfig, settings: Mapping[str, Effective], label: str | None) -> ByLabel | None:
    rules = plan_by_label(config, settings, label)
    if rules is None or label is not None or not config.kubernetes_api:
        return rules
    heard = read_heard_label(config.state_folder)
    return rules if heard is None else replace(rules, value=heard.value)


def _chosen(rules: ByLabel) -> tuple[Path, str] | None:
    """Return the file of the folder that counts, and who says so. A mounted ConfigMap's own names begin with ".."."""
    try:
        names = [each.name for each in rules.folder.iterdir() if not each.name.startswith("..") and not each.is_dir()]
    except OSError as error:
        problem = f"{rules.folder}: {os_reason(error)}"
        raise ConfigError(problem, "it is named by nvidiaConfigFolder or CONFIG_FILE_SRCDIR") from error
    found = choose(rules, names)
    return None if found is None else (rules.folder / found[0], found[1])


def _not_read(environment: Mapping[str, str]) -> Iterator[str]:
    for name, instead in NOT_READ.items():
        if environment.get(name):
            yield f"{name} changes nothing: plugin and feature discovery are one process here, set {instead}"


def _read_file(path: Path) -> FileSettings:
    from plugin.settings.nvidia.document import parse_document  # noqa: PLC0415 - most nodes have no such file
    from plugin.settings.nvidia.yaml_file import read_document  # noqa: PLC0415 - most nodes have no such file

    return parse_document(read_document(path))
