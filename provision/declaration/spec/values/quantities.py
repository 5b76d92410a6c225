"""Reads quantities as Kubernetes writes them, such as 2Gi or 500m, as far as the declaration allows them."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Final

_FORM: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
_UNITS: Final = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("k", "M", "G", "T"), 1)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti"), 1)},
}


def parse_quantity(text: object) -> Fraction | None:
    """Return a quantity as a number, of bytes for memory; None for what is no quantity, such as a percentage."""
    found = _FORM.fullmatch(str(text)) if isinstance(text, str | int | float) and not isinstance(text, bool) else None
    return None if found is None else Fraction(found[1]) * _UNITS[found[2] or ""]


def show_memory(amount: Fraction) -> str:
    """Return an amount of memory in MiB, exactly."""
    return f"{float(amount / _UNITS['Mi']):g}Mi"
