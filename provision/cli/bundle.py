"""`grapnel bundle`: makes and checks bundles, which hold drivers for nodes without a network."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision import __version__
from provision.bundle.read import verify_bundle
from provision.bundle.sets import Contents, StagedSet
from provision.bundle.write import write_bundle
from provision.cli.options import debug_argument
from provision.errors import ExitCode, UsageError
from provision.payload import store

if TYPE_CHECKING:
    import argparse

    from provision.bundle.model import BundleList

SUMMARY: Final = "make or check a bundle: drivers for nodes without a network"
_MIB: Final = 1024 * 1024


def configure(parser: argparse.ArgumentParser) -> None:
    debug_argument(parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True, dest="action")
    create = actions.add_parser("create", help="write a bundle from what nodes have staged")
    create.add_argument("bundle", type=Path, metavar="FILE", help="the bundle to write")
    create.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="DISTRIBUTION=DIR",
        dest="sets",
        help="a staged set, copied from a node of that distribution, such as debian-13=./550; may be repeated",
    )
    create.add_argument("--payload", type=Path, metavar="DIR", help="archives for the nodes (default: the one built)")
    create.add_argument("--no-payload", action="store_true", help="drivers alone")
    create.add_argument("--collection", type=Path, metavar="DIR", help="the Ansible collection, for plain playbooks")
    create.add_argument("--keys", type=Path, metavar="DIR", help="public keys of package sources")
    verify = actions.add_parser("verify", help="check every byte of a bundle, and show what is in it")
    verify.add_argument("bundle", type=Path, metavar="FILE")


def run(args: argparse.Namespace) -> int:
    """Write or check a bundle, and print what is in it."""
    listing = _create(args) if args.action == "create" else verify_bundle(args.bundle)
    _show(args.bundle, listing)
    return ExitCode.DONE


def _create(args: argparse.Namespace) -> BundleList:
    contents = Contents()
    for given in args.sets:
        contents.add_set(_parse_set(given))
    if not contents.drivers:
        raise UsageError("a bundle needs at least one staged set", hint="name one: --set debian-13=DIR")
    listing = contents.listing(
        __version__,
        payload="" if args.no_payload else contents.add_folder("payload", _payload(args.payload)),
        collection=contents.add_folder("collection", _folder(args.collection)) if args.collection else "",
        keys=contents.add_folder("keys", _folder(args.keys)) if args.keys else "",
    )
    return write_bundle(args.bundle.absolute(), contents.sources, listing)


def _parse_set(given: str) -> StagedSet:
    distribution, separator, folder = given.partition("=")
    if not (distribution and separator and folder):
        raise UsageError(f"--set {given}: not DISTRIBUTION=DIR", hint="such as --set debian-13=./staged/298ef9376dac")
    return StagedSet(distribution, _folder(Path(folder)))


def _payload(asked: Path | None) -> Path:
    folder = asked or store.payload_folder(os.environ)
    store.load_payload(folder)  # a payload that is not whole is of no use elsewhere
    return folder


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder", hint="give the path of one that exists")
    return path


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
