"""Which resource a GPU belongs to, by its product's name: `resources` of a `version: v1` file. Pure.

NVIDIA's plugin reads this and throws it away; here it works for whole GPUs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

DOMAIN = "nvidia.com"
_MAX_NAME = 63
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_QUALIFIED = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")


@dataclass(frozen=True)
class NamePattern:
    """GPUs whose product name is `pattern` are offered as `resource`; `*` stands for anything.

    As in NVIDIA's plugin from 0.20 on (`ResourcePattern.Matches` in `api/config/v1/resources.go`).
    """

    pattern: str
    resource: str
    origin: str = field(default="", compare=False)  # where it stands

    def fits(self, model: str) -> bool:
        """Whether the pattern is the whole name of a product."""
        return re.fullmatch(self._expression, model) is not None

    def is_part_of(self, model: str) -> bool:
        """Whether the pattern is anywhere in the name: all that NVIDIA's plugin asked for up to 0.19."""
        return re.search(self._expression, model) is not None

    @property
    def _expression(self) -> str:
        return ".*".join(map(re.escape, self.pattern.split("*")))

    @property
    def is_open(self) -> bool:
        """Whether it means the same anchored or not: anything may stand before and after it."""
        return self.pattern.startswith("*") and self.pattern.endswith("*")

    def describe(self) -> str:
        """Return it with the place where it stands."""
        return f'{self.origin}: pattern "{self.pattern}"' if self.origin else f'pattern "{self.pattern}"'

    def remedy(self) -> str:
        """Return what to write where a part of a name was meant."""
        open_pattern = f"*{self.pattern.strip('*')}*"
        return f'since 0.20 of NVIDIA\'s plugin a pattern is the whole name, write "{open_pattern}" if a part is meant'


def find_pattern(model: str, patterns: Iterable[NamePattern]) -> NamePattern | None:
    """Return the first pattern that fits, None where none does."""
    return next((pattern for pattern in patterns if pattern.fits(model)), None)


def explain_change(model: str, patterns: Iterable[NamePattern]) -> str:
    """Return which pattern took a product up to NVIDIA's 0.19 and does not now, "" where the name is the same."""
    patterns = tuple(patterns)
    before = next((pattern for pattern in patterns if pattern.is_part_of(model)), None)
    now = find_pattern(model, patterns)
    if before is None or (now is not None and now.resource == before.resource):
        return ""
    return f"{before.describe()} is only a part of {model!r}: {before.remedy()}"


def parse_resource_name(value: object) -> str:
    """Return the name of an extended resource, domain included; raises ValueError.

    Kubernetes' rule (`IsExtendedResourceName` in pkg/apis/core/v1/helper) with NVIDIA's limit: the kubelet could not
    reach the socket of a much longer name, as a socket's path has at most 107 bytes.
    """
    domain, slash, name = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not slash or not _DOMAIN.fullmatch(domain) or not _QUALIFIED.fullmatch(name):
        if slash and "+" in name and _QUALIFIED.fullmatch(dotted := name.replace("+", ".")):
            raise ValueError(f'must have "+" written as ".": {domain}/{dotted}')
        raise ValueError('must be a resource name with a domain of its own, such as "nvidia.com/gpu"')
    if len(domain) + len(name) >= _MAX_NAME:
        raise ValueError(f"must be a resource name of at most {_MAX_NAME} characters, domain and slash included")
    if domain.endswith("kubernetes.io") or domain.startswith("requests."):
        raise ValueError("must not be in the domain kubernetes.io, nor begin with requests.")
    return f"{domain}/{name}"


def complete_resource_name(value: object) -> str:
    """Return the whole name, `nvidia.com/` in front of a bare one; raises ValueError."""
    return parse_resource_name(f"{DOMAIN}/{value}" if isinstance(value, str) and "/" not in value else value)


def parse_pattern(value: object) -> str:
    """Return the pattern; raises ValueError."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise ValueError("must be a text, in which * stands for anything")
    return value
