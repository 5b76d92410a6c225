"""Which GPUs are being changed: a value, and the text of its file. Pure."""

from __future__ import annotations

import json
from typing import NamedTuple

from plugin.base.documents import list_of, member, read_versioned, text, truth

SCHEMA = "grapnel.dev/mig-change/v1alpha1"
MAX_BYTES = 1024 * 1024


class OpenMigChange(NamedTuple):
    """The GPUs that are being changed, which nobody is given. `closes`: the driver must not be open for it.

    `problem` says why the file cannot be understood: then nobody knows which GPUs these are.
    """

    since: str
    uuids: frozenset[str] = frozenset()
    closes: bool = False
    problem: str = ""


def render_change(change: OpenMigChange) -> str:
    """Return the text of the file."""
    document = {"schema": SCHEMA, "since": change.since, "gpus": sorted(change.uuids), "closes": change.closes}
    return json.dumps(document, indent=2) + "\n"


def parse_change(content: bytes) -> OpenMigChange:
    """Return what a file says; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, SCHEMA)
    uuids = member(document, "gpus", list_of(text(128)))
    return OpenMigChange(member(document, "since", text()), frozenset(uuids), member(document, "closes", truth))
