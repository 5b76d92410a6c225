"""Which resource a GPU belongs to, by its product's name: `resources` of a `version: v1` file. Pure.

NVIDIA's plugin reads this and throws it away; here it works for whole GPUs.
"""

from __future__ import annotations

import re
from dataclasses import field

from plugin.values import dataclass

DOMAIN = "nvidia.com"
_MAX_NAME = 63
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"({_LABEL}(\.{_LABEL})*)/({_LABEL}(\.{_LABEL})*)")


@dataclass(frozen=True)
class NamePattern:
    """GPUs whose product name has `pattern` in it are offered as `resource`; `*` stands for anything."""

    pattern: str
    resource: str
    origin: str = field(default="", compare=False)  # where it stands

    def fits(self, model: str) -> bool:
        """Whether a product name fits; like NVIDIA's the pattern may stand anywhere in it."""
        return re.search(".*".join(map(re.escape, self.pattern.split("*"))), model) is not None


def resource_for(model: str, patterns: tuple[NamePattern, ...]) -> str | None:
    """Return the resource of the first pattern that fits, None where none does."""
    return next((pattern.resource for pattern in patterns if pattern.fits(model)), None)


def parse_resource_name(value: object) -> str:
    """Return the whole name, `nvidia.com/` in front of a bare one; raises ValueError."""
    if not isinstance(value, str):
        raise ValueError("must be a resource name")  # noqa: TRY004 - every wrong value is one kind of error here
    name = value if "/" in value else f"{DOMAIN}/{value}"
    fits = _NAME.fullmatch(name)
    if not fits or len(name) > _MAX_NAME:
        raise ValueError(f"must be a resource name of at most {_MAX_NAME} characters: lower case, digits, - and .")
    if fits.group(1) == "kubernetes.io" or fits.group(1).endswith(".kubernetes.io"):
        raise ValueError("must not be in the domain kubernetes.io")
    return name


def parse_pattern(value: object) -> str:
    """Return the pattern; raises ValueError."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("must be a text, in which * stands for anything")
    return value
