"""Chooses the inventory where the command line names none: the folder's, else the one that ansible.cfg names."""

from __future__ import annotations

import configparser
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.declaration.fleet.errors import InventoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

USUAL_NAMES: Final = ("inventory", "inventory.yml", "inventory.yaml", "hosts.yml", "hosts.yaml")


def choose_inventories(given: Sequence[str], directory: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what to hand to Ansible, paths as absolute ones; empty where nothing is given, usual or configured.

    A text with a comma is a list of hosts, as in Ansible (`-i n1,n2`). Raises InventoryError for a path that is
    not there.
    """
    if given:
        return tuple(_absolute(each, directory) for each in given)
    for name in USUAL_NAMES:
        if (directory / name).exists():
            return (str(directory / name),)
    if environ.get("ANSIBLE_INVENTORY"):
        return tuple(_absolute(each, directory) for each in _split(environ["ANSIBLE_INVENTORY"]))
    return _configured(directory, environ)


def inventory_key(inventories: Iterable[str], here: Path) -> str:
    """Return 16 digits that stand for an inventory in file names; without one, for ``here``, what ansible.cfg names.

    An inventory is a path, or a list of hosts with a comma.
    """
    named = sorted(one if "," in one else str(Path(one).resolve()) for one in inventories) or [str(here.resolve())]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()[:16]


def _absolute(source: str, directory: Path) -> str:
    if "," in source:
        return source
    path = directory / Path(source).expanduser()
    if not path.exists():
        raise InventoryError(f"inventory {source} does not exist", hint="name a file or a folder with `--inventory`")
    return str(path)


def _configured(directory: Path, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return what the first configuration file in Ansible's order names; relative paths start at that file."""
    candidates = [
        *([Path(environ["ANSIBLE_CONFIG"])] if environ.get("ANSIBLE_CONFIG") else []),
        directory / "ansible.cfg",
        *([Path(environ["HOME"]) / ".ansible.cfg"] if environ.get("HOME") else []),
    ]
    path = next((each for each in candidates if each.is_file()), None)
    if path is None:
        return ()
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",), strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        reason = str(error).splitlines()[0].lower()
        raise InventoryError(f"{path} cannot be read: {reason}") from error
    return tuple(_absolute(each, path.parent) for each in _split(parser.get("defaults", "inventory", fallback="")))


def _split(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]
