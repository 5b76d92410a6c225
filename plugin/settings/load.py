"""Reads everything that decides how the daemon runs: node.json, a file of NVIDIA's form, environment and flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.config import find_config
from plugin.settings.document import FileSettings, parse_document
from plugin.settings.merge import merge, read_flags, read_variables
from plugin.settings.resolve import Resolved, resolve
from plugin.settings.table import CONFIG_FILE_FLAG, CONFIG_FILE_VARIABLE
from plugin.settings.yaml_file import read_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.config import NodeConfig
    from plugin.settings.merge import Effective


@dataclass(frozen=True)
class Given:
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
    """The result, and every setting's value with its origin."""

    resolved: Resolved
    settings: Mapping[str, Effective]

    @property
    def config(self) -> NodeConfig:
        """What the daemon runs with."""
        return self.resolved.config


def load(given: Given) -> Loaded:
    """Read all of it; raises ConfigError."""
    config = find_config(given.config)
    named = given.nvidia_config()
    if named is not None:
        config = replace(config, nvidia_config=named[0])
    path = config.nvidia_config
    file = FileSettings() if path is None else parse_document(read_document(path))
    settings = merge([read_flags(given.flags), read_variables(given.environment), file.values])
    resolved = resolve(config, settings, file)
    if named is not None:
        resolved = replace(resolved, origins={**resolved.origins, "nvidiaConfigFile": named[1]})
    return Loaded(resolved, settings)
