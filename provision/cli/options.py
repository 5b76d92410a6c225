"""Defines the options that verbs share, and loads the fleet that they select."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import argparse

    from provision.fleet.model import Fleet

DECLARATION: Final = Path("grapnel.yaml")


def common_arguments(
    parser: argparse.ArgumentParser, *, limit_help: str = "only these hosts, as in ansible --limit"
) -> None:
    """Add `--file`, `--inventory`, `--limit` and `--debug`; `load_fleet` reads them."""
    declaration_argument(parser)
    inventory_argument(parser)
    parser.add_argument("--limit", default="", metavar="PATTERN", help=limit_help)
    debug_argument(parser)


def declaration_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--file`; `load_fleet` reads it."""
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        default=DECLARATION,
        metavar="FILE",
        help="declaration (default: %(default)s)",
    )


def inventory_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--inventory`; `inventories_of` reads it."""
    parser.add_argument(
        "-i",
        "--inventory",
        action="append",
        default=[],
        metavar="PATH",
        help="Ansible inventory, may be repeated (default: inventory[.yaml], hosts.yaml, else ansible.cfg's)",
    )


def debug_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--debug` after the verb as well; the one before it keeps its value."""
    import argparse  # noqa: PLC0415 - for the constant alone

    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")


def load_fleet(args: argparse.Namespace) -> Fleet:
    """Return the machines that the command line selects, each with its effective declaration.

    Warnings are printed. Raises DeclarationError with all findings, or InventoryError.
    """
    from provision.cli.terminal import print_findings  # noqa: PLC0415 - start-up time
    from provision.fleet.ansible import run_program  # noqa: PLC0415 - start-up time
    from provision.fleet.load import load  # noqa: PLC0415 - start-up time
    from provision.runner.early import EarlyAnsible  # noqa: PLC0415 - start-up time

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
    """Return the inventories that are meant, empty where there is none."""
    from provision.fleet.sources import choose_inventories  # noqa: PLC0415 - start-up time

    return choose_inventories(args.inventory, Path.cwd(), os.environ)
