"""What is remembered of a change: how the GPUs were cut before, and since. Pure.

Not here: the file itself (`store`), and what a change under way is (`change`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.base.documents import list_of, member, members, read_versioned, text, truth, whole
from plugin.changes.mig_layout.model import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.changes.mig_layout.model import GpuLayout

    Cut = tuple[bool, tuple[Instance, ...]]  # whether MIG mode is on, and the instances

BEFORE_SCHEMA = "grapnel.dev/mig-before/v1alpha1"
MAX_BYTES = 1024 * 1024


@dataclass(frozen=True)
class Before:
    """How GPUs were cut, by UUID, before they were changed to what `wanted` names. `is_done`: they were.

    `after` is how they are cut since: after a reboot every instance gets its place again, and with it its UUID.
    """

    since: str
    wanted: str
    gpus: Mapping[str, Cut]
    is_done: bool = False
    after: Mapping[str, Cut] = field(default_factory=dict)


def cuts_of(gpus: Iterable[GpuLayout]) -> dict[str, Cut]:
    """Return how GPUs are cut, without who uses what."""
    return {
        gpu.uuid: (bool(gpu.is_cut), tuple(Instance(i.start, i.size, i.profile, i.compute) for i in gpu.instances))
        for gpu in gpus
    }


def render_before(before: Before) -> str:
    """Return the text of the file."""
    head = {"schema": BEFORE_SCHEMA, "since": before.since, "wanted": before.wanted, "isDone": before.is_done}
    cuts = {"gpus": _cuts_to_json(before.gpus), "after": _cuts_to_json(before.after)}
    return json.dumps({**head, **cuts}, indent=2) + "\n"


def _cuts_to_json(cuts: Mapping[str, Cut]) -> dict[str, object]:
    return {
        uuid: {
            "migEnabled": is_cut,
            "instances": [
                {"profile": i.profile, "start": i.start, "size": i.size, "compute": list(i.compute)} for i in instances
            ],
        }
        for uuid, (is_cut, instances) in cuts.items()
    }


def parse_before(content: bytes) -> Before:
    """Return what a file says; raises ValueError."""
    document = read_versioned(content, MAX_BYTES, BEFORE_SCHEMA)
    return Before(
        since=member(document, "since", text()),
        wanted=member(document, "wanted", text()),
        gpus=member(document, "gpus", _parse_cuts),
        is_done=member(document, "isDone", truth),
        after=member(document, "after", _parse_cuts, {}),
    )


def _parse_cuts(value: object) -> dict[str, Cut]:
    return {uuid: _parse_cut(cut) for uuid, cut in members(value).items()}


def _parse_cut(value: object) -> Cut:
    return member(value, "migEnabled", truth), member(value, "instances", list_of(_parse_instance))


def _parse_instance(value: object) -> Instance:
    return Instance(
        start=member(value, "start", whole()),
        size=member(value, "size", whole()),
        profile=member(value, "profile", text(64)),
        compute=member(value, "compute", list_of(whole())),
    )
