"""`grapnel remove`: takes grapnel away from nodes, and gives back what was there before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.apply.removal import ALL_PARTS, Part
from provision.cli.incident.driver_verb import run_verb
from provision.rollout.changes.removing import Removing

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """Take what is named away from the nodes that are selected."""
    parts = frozenset(part for part in Part if getattr(args, part.value)) or ALL_PARTS
    return run_verb(args, Removing(parts=parts))
