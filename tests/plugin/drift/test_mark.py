"""The node and the planner agree on which files somebody has edited, and with that on the command that mends it."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from plugin.cli.drift import compare_now
from plugin.drift.mark import is_edited
from provision.planning.engines.files.mark import Origin, marked, origin_of
from tests.plugin.drift.node import CONTENT, FILE, Node

if TYPE_CHECKING:
    from pathlib import Path

PLACE = "/etc/containerd/conf.d/99-grapnel.toml"
TEXT = marked("version = 3\n[plugins]\n")
ABOVE = "{{ template }}\n"

CASES = {
    "as written": (TEXT, "start"),
    "a value was added": (TEXT + "oom_score = -999\n", "start"),
    "a line was put above": ("# mine\n" + TEXT, "start"),
    "all of it was replaced, the mark too": ("version = 2\n", "start"),
    "a mark of a release without a sum": ("# managed by grapnel\nversion = 2\n", "start"),
    "emptied": ("", "start"),
    "the end of somebody's template": (ABOVE + TEXT, "end"),
    "a template, edited above": (ABOVE + "# mine\n" + TEXT, "end"),
    "a template, edited at its end": (ABOVE + TEXT + "x = 1\n", "end"),
    "a template without a mark": (ABOVE, "end"),
    "not in UTF-8": ("# managed by grapnel\n\udcff = 1\n", "start"),
    "not in UTF-8, and edited": (TEXT + "\udcff = 1\n", "start"),
}


@pytest.mark.parametrize(("text", "mark"), CASES.values(), ids=CASES)
def test_both_take_the_same_files_for_edited(text: str, mark: str) -> None:
    assert is_edited(text.encode("utf-8", "surrogateescape"), mark) is (
        origin_of(text, is_block=mark == "end") is Origin.EDITED
    )


@pytest.mark.parametrize(
    ("now", "mark", "command"),
    [
        (TEXT + "x = 1\n", "start", "grapnel apply --force --limit n17"),
        (TEXT + "x = 1\n", "", "grapnel apply --limit n17"),
        (marked("version = 2\n"), "start", "grapnel apply --limit n17"),
        (None, "start", "grapnel apply --limit n17"),
    ],
    ids=["edited", "edited, where apply overwrites", "written by another release", "removed"],
)
def test_an_edit_at_which_apply_stops_is_mended_with_force_along_with_all_else_on_the_node(
    tmp_path: Path, now: str | None, mark: str, command: str
) -> None:
    node = Node(tmp_path)
    files = [
        {"path": PLACE, "sha256": hashlib.sha256(TEXT.encode()).hexdigest(), "mode": "0644", "mark": mark},
        {"path": FILE, "sha256": hashlib.sha256(CONTENT.encode()).hexdigest(), "mode": "0644"},
    ]
    node.declare(files=files)
    if now is not None:
        node.write(PLACE, now)
    (node.root / FILE.lstrip("/")).unlink()

    found = compare_now(node.record, node.host())

    assert [(each.name, each.mend) for each in found.differences] == [(PLACE, command), (FILE, command)]
