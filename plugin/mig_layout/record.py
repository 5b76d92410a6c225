"""What is remembered of a change: how the GPUs were cut before, and which of them are being changed. Pure.

Both are files of the state folder, with one writer at a time (`store`). Not here: the files themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from plugin.documents import list_of, member, members, read_versioned, text, truth, whole
from plugin.mig_layout.model import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.mig_layout.model import GpuLayout

    Cut = tuple[bool, tuple[Instance, ...]]  # whether MIG mode is on, and the instances

BEFORE_SCHEMA = "grapnel.dev/mig-before/v1alpha1"
CHANGE_SCHEMA = "grapnel.dev/mig-change/v1alpha1"
MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Before:
    """How GPUs were cut, by UUID, before they were changed to what `wanted` names. `is_done`: they were."""

    since: str
    wanted: str
    gpus: Mapping[str, Cut]
    is_done: bool = False


@dataclass(frozen=True)
class Change:
    """The GPUs that are being changed, which nobody is given. `closes`: the driver must not be open for it.

    `problem` says why the file cannot be understood: then nobody knows which GPUs these are.
    """

    since: str
    uuids: frozenset[str] = frozenset()
    closes: bool = False
    problem: str = ""


def cuts_of(gpus: Iterable[GpuLayout]) -> dict[str, Cut]:
    """Return how GPUs are cut, without who uses what."""
    return {
        gpu.uuid: (bool(gpu.is_cut), tuple(Instance(i.start, i.size, i.profile, i.compute) for i in gpu.instances))
        for gpu in gpus
    }


def render_before(before: Before) -> str:
    """Return the text of the file."""
    gpus = {
        uuid: {
            "migEnabled": is_cut,
            "instances": [
                {"profile": i.profile, "start": i.start, "size": i.size, "compute": list(i.compute)} for i in instances
            ],
        }
        for uuid, (is_cut, instances) in before.gpus.items()
    }
    head = {"schema": BEFORE_SCHEMA, "since": before.since, "wanted": before.wanted, "isDone": before.is_done}
    return json.dumps({**head, "gpus": gpus}, indent=2) + "\n"


def parse_before(content: bytes) -> Before:
    """Return what a file says; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, BEFORE_SCHEMA)
    gpus = {uuid: _parse_cut(cut) for uuid, cut in member(document, "gpus", members).items()}
    return Before(
        member(document, "since", text()), member(document, "wanted", text()), gpus, member(document, "isDone", truth)
    )


def _parse_cut(value: object) -> Cut:
    return member(value, "migEnabled", truth), member(value, "instances", list_of(_parse_instance))


def _parse_instance(value: object) -> Instance:
    return Instance(
        start=member(value, "start", whole()),
        size=member(value, "size", whole()),
        profile=member(value, "profile", text(64)),
        compute=member(value, "compute", list_of(whole())),
    )


def render_change(change: Change) -> str:
    """Return the text of the file."""
    document = {"schema": CHANGE_SCHEMA, "since": change.since, "gpus": sorted(change.uuids), "closes": change.closes}
    return json.dumps(document, indent=2) + "\n"


def parse_change(content: bytes) -> Change:
    """Return what a file says; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, CHANGE_SCHEMA)
    uuids = member(document, "gpus", list_of(text(128)))
    return Change(member(document, "since", text()), frozenset(uuids), member(document, "closes", truth))
