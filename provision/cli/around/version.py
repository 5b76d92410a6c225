"""`grapnel version`, and `--version`: what this installation is, and what it would send to nodes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import provision
from provision.apply.runner import find_collection
from provision.base.errors import ExitCode, GrapnelError
from provision.cli.parsers.options import DECLARATION
from provision.cli.terminal import say
from provision.planning.supply.payload.place import payload_folder
from provision.planning.supply.payload.store import load_payload

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from provision.planning.supply.payload.model import Payload

SCHEMA: Final = "grapnel.dev/version/v1alpha1"
COLLECTION: Final = "grapnel.node"
_VERSION: Final = re.compile(r"^version:\s*(\S+)", re.MULTILINE)
_DIGITS: Final = 12  # of a digest, as in the names of the archives


def run(args: argparse.Namespace) -> int:
    """Print the versions; parts that are missing are no failure."""
    document = versions(args.payload, args.file, os.environ)
    if args.json:
        print(json.dumps(document, indent=2))
    else:
        for line in lines_of(document):
            say(line)
    return ExitCode.DONE


def version_lines() -> Iterator[str]:
    """Return what `--version` prints."""
    return lines_of(versions(None, DECLARATION, os.environ))


def versions(asked: Path | None, declaration: Path, environment: Mapping[str, str]) -> dict[str, object]:
    """Return the document; of the collection and the payload None where there is none, with a problem that says so."""
    problems: list[dict[str, str]] = []
    return {
        "schema": SCHEMA,
        "grapnel": provision.__version__,
        "collection": _collection(problems),
        "payload": _payload(asked, declaration, environment, problems),
        "problems": problems,
    }


def _collection(problems: list[dict[str, str]]) -> dict[str, str] | None:
    folder = find_collection(Path(provision.__file__).parent)
    if folder is None:
        problems.append({"message": f"there is no collection {COLLECTION}", "hint": "reinstall grapnel"})
        return None
    galaxy = folder / "galaxy.yml"
    found = _VERSION.search(galaxy.read_text(encoding="utf-8")) if galaxy.is_file() else None
    return {"name": COLLECTION, "version": found[1] if found else "unknown", "path": str(folder)}


def _payload(
    asked: Path | None, declaration: Path, environment: Mapping[str, str], problems: list[dict[str, str]]
) -> dict[str, object] | None:
    try:
        folder = payload_folder(asked, environment, declaration)
        return {"path": str(folder.absolute()), **_archives(load_payload(folder))}
    except GrapnelError as error:
        problems.append({"message": error.message, "hint": error.hint})
        return None


def _archives(payload: Payload) -> dict[str, object]:
    """Return the digests, and the oldest Python of nodes with which the daemon runs."""
    return {
        "hook": payload.hook.digest,
        "driver": payload.driver.digest,
        "node": payload.node.digest,
        "python": payload.node.python,
    }


def lines_of(document: Mapping[str, object]) -> Iterator[str]:
    """Yield the document for people; the first line is `grapnel VERSION` alone."""
    yield f"grapnel {document['grapnel']}"
    collection, payload = document["collection"], document["payload"]
    if isinstance(collection, dict):
        yield f"collection  {collection['name']} {collection['version']}"
    if isinstance(payload, dict):
        yield f"payload     {payload['path']}"
        yield f"  hook      {payload['hook'][:_DIGITS]}"
        yield f"  driver    {payload['driver'][:_DIGITS]}"
        yield f"  daemon    {payload['node'][:_DIGITS]}  for nodes with Python {payload['python']} and later"
    for problem in document["problems"]:  # type: ignore[attr-defined] # a list, made above
        yield f"nodes cannot be provisioned: {problem['message']}"
        yield f"  hint: {problem['hint']}"
