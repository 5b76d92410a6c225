"""Metrics, their families of samples, and these as text: the Prometheus text format 0.0.4.

Source: Prometheus' "Exposition formats". Pure. Not here: which families there are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KINDS = ("counter", "gauge", "histogram")
Labels = tuple[tuple[str, str], ...]

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*")
_IN_HELP = str.maketrans({"\\": r"\\", "\n": r"\n"})
_IN_LABEL = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True)
class Sample:
    """One number. `suffix` is what a histogram's samples add to the family's name: `_bucket`, `_sum`, `_count`."""

    value: float
    labels: Labels = ()
    suffix: str = ""


@dataclass(frozen=True)
class Family:
    """Samples of one name. Raises ValueError for a name or a kind that the format does not have."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...] = ()

    def __post_init__(self) -> None:
        if not _METRIC_NAME.fullmatch(self.name) or self.kind not in KINDS:
            raise ValueError(f"not a metric: {self.kind} {self.name}")


def format_value(value: float) -> str:
    """Return a number as Prometheus reads it: whole ones without a point, and every digit of the others."""
    if isinstance(value, int):
        return str(value)
    if isnan(value):
        return "NaN"
    if value in {float("inf"), float("-inf")}:
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value.is_integer() and abs(value) < 1 << 53 else repr(value)


def _label_text(labels: Labels) -> str:
    for name, _ in labels:
        if not _LABEL_NAME.fullmatch(name):
            raise ValueError(f"not a label: {name}")
    pairs = ",".join(f'{name}="{value.translate(_IN_LABEL)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def _sample_lines(family: Family, texts: dict[Labels, str]) -> Iterator[str]:
    for sample in family.samples:
        text = texts.get(sample.labels)
        if text is None:
            text = texts[sample.labels] = _label_text(sample.labels)
        yield f"{family.name}{sample.suffix}{text} {format_value(sample.value)}\n"


def render(families: Iterable[Family]) -> bytes:
    """Return the page: families by name, their samples as they were given; a family without samples is left out.

    The same families are the same bytes, whatever their order. Raises ValueError for a label that the format has not.
    """
    parts: list[str] = []
    texts: dict[Labels, str] = {}  # every family has the same few labels
    for family in sorted(families, key=lambda family: family.name):
        if not family.samples:
            continue
        parts.append(f"# HELP {family.name} {family.help.translate(_IN_HELP)}\n# TYPE {family.name} {family.kind}\n")
        parts.extend(_sample_lines(family, texts))
    return "".join(parts).encode("utf-8", errors="replace")


POD_LABELS = ("container", "namespace", "pod")
CLAIM_LABELS = ("dra_claim_name", "dra_claim_namespace")  # of a GPU that a claim brought


@dataclass(frozen=True)
class Metric:
    """A name that may be on the page. `labels` are all that a sample of it can have."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()

    def family(self, samples: Iterable[Sample]) -> Family:
        """Return the family of these samples."""
        return Family(self.name, self.kind, self.help, tuple(samples))
