"""`grapnel bundle create`: writes a bundle from what nodes collect, from staged sets and from built modules."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import provision
from provision import __version__
from provision.base.errors import GrapnelError, UsageError
from provision.bundle.module_archive import read_module_archive
from provision.bundle.sets import Contents, StagedSet
from provision.bundle.signature import sign
from provision.bundle.write import write_bundle
from provision.cli.bundle_collect import FLAVOURS, Creation
from provision.cli.options import common_arguments
from provision.cli.plan import run_arguments
from provision.payload import store
from provision.payload.place import payload_folder
from provision.runner import find_collection

if TYPE_CHECKING:
    import argparse

    from provision.bundle.model import BundleList
    from provision.bundle.module_archive import BuiltModules

_FROM: Final = "a host of the inventory with a network, which collects for its distribution; one for each distribution"
_VERSION: Final = "a version or branch, may be repeated (default: what is declared for the nodes)"
_KERNEL: Final = "a kernel that needs the module, may be repeated (default: the kernels of the nodes)"
_MODULES: Final = "modules that are built already, as `dkms mktarball --binaries-only` packs them; may be repeated"
_SIGN: Final = "sign it with this ssh key, into FILE.sig (default: $GRAPNEL_SIGNING_KEY, else it is not signed)"
_SET: Final = "a staged set, copied from a node of that distribution, such as debian-13=./550; may be repeated"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("target", type=Path, metavar="FILE", help="the bundle to write")
    _add(parser, "--from", "NODE", "collectors", _FROM)
    common_arguments(parser, limit_help="the nodes that the bundle is for, whose facts are read (default: as --from)")
    _add(parser, "--version", "V", "versions", _VERSION)
    _add(parser, "--kernel", "RELEASE", "kernels", _KERNEL)
    parser.add_argument("--flavour", choices=sorted(FLAVOURS), help="kernel module (default: what the GPUs need)")
    _add(parser, "--modules", "[DISTRIBUTION=]FILE", "archives", _MODULES)
    parser.add_argument("--no-build", action="store_true", help="build no modules for kernels without --modules")
    _add(parser, "--set", "DISTRIBUTION=DIR", "sets", _SET)
    run_arguments(parser)
    parser.add_argument("--collection", type=Path, metavar="DIR", help="the Ansible collection (default: this one's)")
    parser.add_argument("--keys", type=Path, metavar="DIR", help="public keys of package sources")
    parser.add_argument("--drivers-only", action="store_true", help="leave payload and collection out")
    parser.add_argument("--sign", type=Path, metavar="KEY", help=_SIGN)


def _add(parser: argparse.ArgumentParser, option: str, metavar: str, name: str, text: str) -> None:
    """Add an option that may be repeated."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, dest=name, help=text)


def create(args: argparse.Namespace) -> BundleList:
    """Write the bundle and return its list; nothing is left behind where that fails."""
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
    store.load_payload(folder)  # one that is not whole is of no use elsewhere
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
