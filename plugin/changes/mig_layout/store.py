"""The declared layout, and `mig-before.json` in the state folder: how GPUs were cut, written by one at a time."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from plugin.base.documents import list_of, member, members, read_versioned, text, truth, whole
from plugin.changes.mig_layout.change.store import read_file, write_file
from plugin.changes.mig_layout.document import MAX_BYTES as MAX_LAYOUT
from plugin.changes.mig_layout.document import parse_layout
from plugin.changes.mig_layout.model import Instance

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from plugin.changes.mig_layout.model import GpuLayout, Layout

    Cut = tuple[bool, tuple[Instance, ...]]  # whether MIG mode is on, and the instances

BEFORE_FILE = "mig-before.json"


def read_layout(path: Path) -> Layout | None:
    """Return the declared layout, None where none is declared; raises MigError."""
    return read_file(path, MAX_LAYOUT, parse_layout, "it is written by `grapnel apply`; the contract is mig-layout")


def read_before(folder: Path) -> Before | None:
    """Return how GPUs were cut, None where nothing was changed; raises MigError."""
    hint = "look at it, then remove it: how the gpus were cut is forgotten with it"
    return read_file(folder / BEFORE_FILE, MAX_BYTES, parse_before, hint)


def write_before(folder: Path, before: Before) -> None:
    """Put the file in place in one step and on the disk; raises MigError."""
    write_file(folder / BEFORE_FILE, render_before(before))


# What is remembered of a change: how the GPUs were cut before, and since.

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
