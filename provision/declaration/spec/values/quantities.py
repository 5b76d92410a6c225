"""Reads quantities as Kubernetes writes them, such as 2Gi or 500m; a declaration may have fewer forms."""

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
_WRITTEN: Final = re.compile(r"([0-9]{1,19}(?:\.[0-9]{1,9})?)(?:[eE](-?[0-9]{1,2})|(n|u|P|E|Pi|Ei))")
_FURTHER: Final = {
    "n": Fraction(1, 1000**3),
    "u": Fraction(1, 1000**2),
    **{unit: Fraction(1000**power) for power, unit in enumerate(("P", "E"), 5)},
    **{unit: Fraction(1024**power) for power, unit in enumerate(("Pi", "Ei"), 5)},
}


def parse_quantity(text: object) -> Fraction | None:
    """Return a quantity as a number, of bytes for memory; None for what is no quantity, such as a percentage."""
    found = _FORM.fullmatch(str(text)) if isinstance(text, str | int | float) and not isinstance(text, bool) else None
    return None if found is None else Fraction(found[1]) * _UNITS[found[2] or ""]


def read_quantity(text: str) -> Fraction | None:
    """Return a quantity in any form that the API server writes (80e9, 1Pi), None for what is none and below zero."""
    found = _WRITTEN.fullmatch(text)
    if found is None:
        return parse_quantity(text)
    return Fraction(found[1]) * (_FURTHER[found[3]] if found[3] else Fraction(10) ** int(found[2]))


def show_memory(amount: Fraction) -> str:
    """Return an amount of memory in MiB, exactly."""
    return f"{float(amount / _UNITS['Mi']):g}Mi"
