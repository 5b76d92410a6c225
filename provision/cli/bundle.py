"""`grapnel bundle`: makes and checks bundles, which hold drivers for nodes without a network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from provision.base.errors import ExitCode
from provision.base.printable import printable_json
from provision.bundle.read import verify_bundle
from provision.cli import bundle_create
from provision.cli.options import debug_argument
from provision.cli.plan import signers_argument, signers_file

if TYPE_CHECKING:
    import argparse

    from provision.bundle.model import BundleList

_MIB: Final = 1024 * 1024


def configure(parser: argparse.ArgumentParser) -> None:
    debug_argument(parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    create = actions.add_parser("create", help="write a bundle, from what nodes collect or have staged")
    bundle_create.configure(create)
    verify = actions.add_parser("verify", help="check every byte of a bundle, and show what is in it")
    verify.add_argument("target", type=Path, metavar="FILE")
    signers_argument(verify)
    for action in (create, verify):
        action.add_argument("--json", action="store_true", help="print its list as JSON (docs/contracts/bundle)")


def run(args: argparse.Namespace) -> int:
    """Write or check a bundle, and print what is in it."""
    if args.action == "create":
        listing = bundle_create.create(args)
    else:
        listing = verify_bundle(args.target, signers_file(args, os.environ))
    if args.json:
        print(printable_json(msgspec.to_builtins(listing)))
    else:
        _show(args.target, listing)
    return ExitCode.DONE


def _show(bundle: Path, listing: BundleList) -> None:
    size = sum(file.size_bytes for file in listing.files)
    print(f"{bundle}: {len(listing.files)} files, {size / _MIB:.0f} MiB, made by grapnel {listing.grapnel}")
    for driver in listing.drivers:
        kernels = ", ".join(module.kernel for module in driver.modules) or "none"
        print(
            f"  {driver.distribution}: driver {driver.version} ({driver.flavour}), {len(driver.packages)} packages, "
            f"modules for: {kernels}"
        )
    for name in ("payload", "collection", "keys"):
        if getattr(listing, name):
            print(f"  {name}")
