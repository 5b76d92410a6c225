"""Reads everything that decides how the daemon runs: node.json, a file of NVIDIA's form, environment and flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.settings.merge import merge, read_flags, read_variables
from plugin.settings.node_config import DEFAULT_NVIDIA_PATH, find_config
from plugin.settings.resolve import Resolved, resolve
from plugin.settings.table import CONFIG_FILE_FLAG, CONFIG_FILE_VARIABLE, NOT_READ

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from plugin.settings.document import FileSettings
    from plugin.settings.merge import Effective
    from plugin.settings.node_config import NodeConfig


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


def load(invocation: Invocation, default_path: Path = DEFAULT_NVIDIA_PATH) -> Loaded:
    """Read all of it; raises ConfigError. A file must be there, unless it is the default one."""
    config = find_config(invocation.config)
    named = invocation.nvidia_config()
    if named is not None:
        config = replace(config, nvidia_config=named[0])
    path = config.nvidia_config
    if named is None and path == default_path and not path.exists():
        path = None
    file = None if path is None else _read_file(path)
    values = {} if file is None else file.values
    settings = merge([read_flags(invocation.flags), read_variables(invocation.environment), values])
    resolved = resolve(config, settings, file)
    if named is not None:
        resolved = replace(resolved, origins={**resolved.origins, "nvidiaConfigFile": named[1]})
    resolved = replace(resolved, notes=(*resolved.notes, *_not_read(invocation.environment)))
    return Loaded(resolved, settings, has_file=path is not None)


def _not_read(environment: Mapping[str, str]) -> Iterator[str]:
    for name, instead in NOT_READ.items():
        if environment.get(name):
            yield f"{name} changes nothing: plugin and feature discovery are one process here, set {instead}"


def _read_file(path: Path) -> FileSettings:
    from plugin.settings.document import parse_document  # noqa: PLC0415 - most nodes have no such file
    from plugin.settings.yaml_file import read_document  # noqa: PLC0415 - most nodes have no such file

    return parse_document(read_document(path))
