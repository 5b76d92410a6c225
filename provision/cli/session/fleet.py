"""Reads what the command line names: nodes, the inventory, and the fleet with its declarations."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from provision.apply.runner.early import EarlyAnsible
from provision.cli.parsers.options import DECLARATION
from provision.cli.terminal import print_findings
from provision.declaration.fleet.ansible import run_program
from provision.declaration.fleet.load import load
from provision.declaration.fleet.sources import choose_inventories

if TYPE_CHECKING:
    import argparse

    from provision.declaration.fleet.model import Fleet


def named_nodes(args: argparse.Namespace) -> list[str]:
    """Return the hosts, groups and patterns that are named."""
    return args.limit.split(",") if args.limit else []


def load_fleet(args: argparse.Namespace) -> Fleet:
    """Return the machines that the command line selects, each with its effective declaration.

    Warnings are printed. Raises DeclarationError with all findings, or InventoryError.
    """
    inventories = inventories_of(args)
    if "early" in args:  # facts follow, in the process that has read the inventory
        args.early = EarlyAnsible()
    run = args.early.read_inventory if "early" in args else run_program
    fleet = load(args.file, inventories, limit=args.limit, directory=Path.cwd(), environ=os.environ, run=run)
    print_findings(fleet.warnings)
    return fleet


def fleet_words(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the options that select the same declaration and inventory, those alone that were given."""
    file = () if args.file == DECLARATION else ("-f", str(args.file))
    return (*file, *(word for path in args.inventory for word in ("-i", path)))


def inventories_of(args: argparse.Namespace) -> tuple[str, ...]:
    """Return the inventories that are meant, empty if there is none."""
    return choose_inventories(args.inventory, Path.cwd(), os.environ)
