"""Which value of a setting counts: command line, then environment, then file, then our default. Pure.

The order is NVIDIA's (`api/config/v1/config.go`). A variable that is empty counts as not set, as manifests set
variables that are not wanted to "".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.base.errors import ConfigError
from plugin.settings.nvidia.table import HINT, SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from plugin.settings.nvidia.kinds import Value

DEFAULT = "default"


@dataclass(frozen=True)
class Effective:
    """The value that counts and where it came from. None: none was given, and it follows from other settings."""

    value: Value | None
    origin: str = DEFAULT

    @property
    def is_given(self) -> bool:
        """Whether anybody gave a value."""
        return self.origin != DEFAULT


def merge(layers: Sequence[Mapping[str, tuple[Value, str]]]) -> dict[str, Effective]:
    """Return every setting's value: of the first layer that has one, else the default."""
    merged = {}
    for setting in SETTINGS:
        found = next((layer[setting.name] for layer in layers if setting.name in layer), None)
        merged[setting.name] = Effective(setting.default) if found is None else Effective(*found)
    return merged


def _parse(parse: Callable[[str], Value], text: str, origin: str, problems: list[str]) -> Value | None:
    try:
        return parse(text)
    except ValueError as error:
        problems.append(f"{origin}: {error}")
        return None


def read_flags(given: Mapping[str, tuple[str, str]]) -> dict[str, tuple[Value, str]]:
    """Return a layer of what the command line says: a setting's name → the flag's name and its text."""
    problems: list[str] = []
    layer: dict[str, tuple[Value, str]] = {}
    for setting in SETTINGS:
        if setting.name in given:
            flag, text = given[setting.name]
            value = _parse(setting.kind.from_text, text, flag, problems)
            if value is not None:
                layer[setting.name] = (value, flag)
    if problems:
        raise ConfigError("; ".join(problems), HINT)
    return layer


def read_variables(environment: Mapping[str, str]) -> dict[str, tuple[Value, str]]:
    """Return a layer of what the environment says; of two names of one setting the first one counts."""
    problems: list[str] = []
    layer: dict[str, tuple[Value, str]] = {}
    for setting in SETTINGS:
        variable = next((name for name in setting.variables if environment.get(name)), None)
        if variable is not None:
            value = _parse(setting.kind.from_text, environment[variable], variable, problems)
            if value is not None:
                layer[setting.name] = (value, variable)
    if problems:
        raise ConfigError("; ".join(problems), HINT)
    return layer
