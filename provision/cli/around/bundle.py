"""`grapnel bundle`: makes and checks bundles, which hold drivers and engines for nodes without a network.

One is made of what nodes collect, of staged sets and of built modules.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import provision
from provision import __version__
from provision.apply.runner import find_collection
from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.base.printable import printable_json
from provision.cli.around.bundle_collect import Creation
from provision.cli.session.context import signers_file
from provision.planning.supply.bundle.module_archive import read_module_archive
from provision.planning.supply.bundle.read import verify_bundle
from provision.planning.supply.bundle.sets import Contents, StagedSet
from provision.planning.supply.bundle.signature import sign
from provision.planning.supply.bundle.write import write_bundle
from provision.planning.supply.payload import store
from provision.planning.supply.payload.place import payload_folder

if TYPE_CHECKING:
    import argparse

    from provision.planning.supply.bundle.model import BundleList
    from provision.planning.supply.bundle.module_archive import BuiltModules

_MIB: Final = 1024 * 1024


def run(args: argparse.Namespace) -> int:
    """Write or check a bundle, and print what is in it."""
    listing = create(args) if args.action == "create" else verify_bundle(args.target, signers_file(args, os.environ))
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
    for engine in listing.engines:
        print(f"  {engine.distribution}: engine {engine.package} {engine.version}, {len(engine.packages)} packages")
    for name in ("payload", "collection", "keys"):
        if getattr(listing, name):
            print(f"  {name}")


def create(args: argparse.Namespace) -> BundleList:
    """Write a bundle and return its list; nothing is left behind where that fails."""
    if not args.collectors and not args.sets:
        raise UsageError(
            "a bundle needs a node that collects, or a staged set", hint="name one: --from NODE, or --set debian-13=DIR"
        )
    target, key = args.target.absolute(), _signing_key(args)
    contents, built = Contents(), [_parse_modules(given) for given in args.archives]
    for given in args.sets:
        contents.add_set(_parse_set(given))
    try:
        folder = tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-", ignore_cleanup_errors=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise GrapnelError(f"{target.parent}: {reason}", hint="write the bundle into a folder that exists") from error
    with folder as place:
        if args.collectors:
            Creation(args, contents, [modules for _, modules in built]).collect(Path(place))
        for distribution, modules in built:
            contents.add_modules(distribution or _distribution_of(modules, contents), modules)
        return write_bundle(target, contents.sources, _describe(args, contents), key)


def _signing_key(args: argparse.Namespace) -> Path | None:
    """Return the key to sign with, None for none; one that cannot sign is found before anything is collected."""
    given = os.environ.get("GRAPNEL_SIGNING_KEY")
    key: Path | None = args.sign or (Path(given) if given else None)
    if key is not None:
        with tempfile.TemporaryFile() as nothing:
            sign(nothing, key)
    return key


def _describe(args: argparse.Namespace, contents: Contents) -> BundleList:
    """Add what belongs beside the drivers, and return the list without the files."""
    payload = collection = ""
    if not args.drivers_only:
        payload = _add_payload(args, contents)
        collection = contents.add_folder("collection", _collection(args.collection))
    keys = contents.add_folder("keys", _folder(args.keys)) if args.keys else ""
    return contents.listing(__version__, payload=payload, collection=collection, keys=keys)


def _add_payload(args: argparse.Namespace, contents: Contents) -> str:
    """Add what the manifest names; archives of former builds may lie beside it."""
    folder = payload_folder(args.payload, os.environ, args.file)
    store.load_payload(folder)  # one that is not whole is of no use on other machines
    manifest = store.read_manifest(folder)
    return contents.add_files("payload", folder, sorted({store.MANIFEST, *(manifest.names if manifest else ())}))


def _collection(asked: Path | None) -> Path:
    folder = asked or find_collection(Path(provision.__file__).parent)
    if folder is None:
        raise GrapnelError("this installation has no grapnel.node collection", hint="name one: --collection DIR")
    return _folder(folder)


def _parse_set(given: str) -> StagedSet:
    distribution, separator, folder = given.partition("=")
    if not (distribution and separator and folder):
        raise UsageError(f"--set {given}: not DISTRIBUTION=DIR", hint="such as --set debian-13=./staged/298ef9376dac")
    return StagedSet(distribution, _folder(Path(folder)))


def _parse_modules(given: str) -> tuple[str, BuiltModules]:
    """Return the distribution, empty where none is said, and what the archive holds."""
    distribution, separator, path = given.rpartition("=")
    if "/" in distribution:
        distribution, separator, path = "", "", given
    return (distribution if separator else "", read_module_archive(Path(path)))


def _distribution_of(built: BuiltModules, contents: Contents) -> str:
    """Return the distribution whose driver the modules belong to."""
    key = (built.version, built.flavour)
    having = sorted({one.distribution for one in contents.drivers if (one.version, one.flavour) == key})
    if len(having) > 1:
        raise UsageError(
            f"--modules {built.path}: the bundle has driver {built.version} for {', '.join(having)}",
            hint=f"say whose modules these are: --modules {having[0]}={built.path}",
        )
    return next(iter(having), "any distribution")


def _folder(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"{path} is not a folder", hint="give the path of one that exists")
    return path
