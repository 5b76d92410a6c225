"""Writes the command that mends what a report shows, fit to be pasted."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from provision.report.terminal import NAMES_SHOWN

if TYPE_CHECKING:
    from collections.abc import Sequence


def mending(apply: Sequence[str], nodes: Sequence[str], *, is_whole: bool = False, force: bool = False) -> str:
    """Return the command for these nodes; with ``force`` it overwrites files of ours that somebody edited there.

    Of more nodes than a line holds it is the one for the whole fleet, which leaves nodes alone that are as declared,
    unless ``is_whole`` asks for all of them.
    """
    limited = is_whole or len(nodes) <= NAMES_SHOWN
    apply = [*apply, "--force"] if force else apply
    return shlex.join([*apply, "--limit", ",".join(nodes)] if limited else apply)
