"""``python -m provision.planning.supply.payload build``: builds the payload and prints where it is."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode, GrapnelError
from provision.planning.supply.payload.build import build_payload
from provision.planning.supply.payload.libraries import CachedLibraries
from provision.planning.supply.payload.sources import find_sources
from provision.planning.supply.payload.store import cache_folder, load_payload, payload_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ROOT = Path(__file__).parents[4]


def main(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run the command and return its exit code."""
    options = _parser(environment).parse_args(arguments)
    try:
        sources = find_sources(options.source)
        libraries = CachedLibraries(sources.requirements, cache_folder(environment) / "libraries", environment)
        build_payload(options.output, sources, libraries)
        payload = load_payload(options.output)
    except GrapnelError as error:
        sys.stderr.write(f"error: {error.message}\n  hint: {error.hint}\n")
        return error.exit_code
    for artifact in (payload.hook, payload.driver, payload.node):
        sys.stdout.write(f"{artifact.path}\n")
    return ExitCode.DONE


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m provision.planning.supply.payload", description="build the archives that nodes install"
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    build = verbs.add_parser("build", help="build the archives and their manifest")
    folder = payload_folder(environment)
    build.add_argument("--output", type=Path, default=folder, metavar="DIR", help=f"default: {folder}")
    build.add_argument("--source", type=Path, default=_ROOT, metavar="DIR", help="folder with grapnel's packages")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
