"""Which labels may be applied, and which of them another field manager owns. Pure.

They are applied as a whole by one field manager: a label that is not among them any more goes away, and labels of
others are never touched.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "nvidia.com/"
OWN = ("grapnel.dev/driver.kernel-module", "grapnel.dev/gpu.ecc")  # of our own domain, where others write, too
FIELD_MANAGER = "grapnel-node"
_MAX_LABELS = 256
_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_FIELD = re.compile(r"\.metadata\.labels\.(?P<key>.+)")
_MANAGER = re.compile(r'conflict with "(?P<manager>[^"]{1,128})"')


def is_label(key: str, value: str) -> bool:
    """Whether the API would take it, and it is one of those that are ours to make."""
    if key not in OWN and (not key.startswith(PREFIX) or not _NAME.fullmatch(key[len(PREFIX) :])):
        return False
    return value == "" or _NAME.fullmatch(value) is not None


def usable_labels(labels: Mapping[str, str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return the labels that can be applied, and the keys of those that cannot: one bad one must not cost the rest."""
    good = {key: value for key, value in sorted(labels.items()) if is_label(key, value)}
    usable = dict(list(good.items())[:_MAX_LABELS])
    return usable, tuple(key for key in labels if key not in usable)


def owners_of(causes: object) -> dict[str, str]:
    """Return label → field manager out of the causes of a refused apply (`status.details.causes`)."""
    found = {}
    for cause in causes if isinstance(causes, list) else []:
        if not isinstance(cause, dict) or cause.get("reason") != "FieldManagerConflict":
            continue
        field, manager = _FIELD.fullmatch(str(cause.get("field"))), _MANAGER.match(str(cause.get("message")))
        if field is not None:
            found[field["key"]] = manager["manager"] if manager is not None else "somebody else"
    return found


def still_refused(refused: Mapping[str, str], wanted: Mapping[str, str], there: Mapping[str, str]) -> dict[str, str]:
    """Return what another field manager still owns: a label that is gone, or says the same, can be applied again."""
    return {key: owner for key, owner in refused.items() if key in there and there[key] != wanted.get(key)}
