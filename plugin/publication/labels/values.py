"""Label values as Kubernetes takes them: at most 63 characters, letters and digits at both ends. Pure.

Characters are dropped as NVIDIA's feature discovery drops them (internal/lm/resource.go, `sanitise`). It does not look
at lengths and ends, so that one odd name costs a node all its labels; here a value is cut to fit.
"""

from __future__ import annotations

import re

MAX_LENGTH = 63
_DROPPED = re.compile(r"[^A-Za-z0-9_. -]")
_ENDS = "-_."


def fit(text: str, room: int = MAX_LENGTH) -> str:
    """Return what of a text can be a value: spaces become dashes, what is not allowed goes."""
    words = _DROPPED.sub("", text).split()
    return "-".join(words)[:room].strip(_ENDS)


def join(name: str, *parts: str) -> str:
    """Return a name and what is added to it, dashes between; a name that is too long gives way to the rest."""
    added = "-".join(filter(None, map(fit, parts)))
    if not added:
        return fit(name)
    kept = fit(name, max(MAX_LENGTH - len(added) - 1, 0))
    return fit(f"{kept}-{added}")
