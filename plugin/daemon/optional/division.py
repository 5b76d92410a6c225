"""Which GPUs of a node are given by claims, where the device plugin gives the others: `claims` of node.json.

A GPU is named by its UUID or its index. Indices are counted once, when a list is declared, in the order of PCI
addresses, and then remembered in `division.json` of the state folder: a GPU that is lost, comes back or is added moves
no other one to the other interface. One that is put into the place of another has its index. Another list is counted
anew.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.documents import list_of, member, members, read_object, text
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.devices.inventory import Inventory

_NAME = "division.json"
_TOPIC = "division between claims and device plugin"
_MAX_BYTES = 256 * 1024
_TEXT = text(253)


class _Place(NamedTuple):
    """A GPU that has an index: which one, and where it was seen last."""

    uuid: str
    address: str


class Division:
    """Of one list, `declared`: indices and UUIDs. Made and used in the event loop."""

    def __init__(self, state_folder: Path, declared: Sequence[str], logger: Logger) -> None:
        self.declared = tuple(declared)
        self._path = state_folder / _NAME
        self._log = logger
        self._places = self._written = self._read()

    def find(self, inventory: Inventory) -> frozenset[str]:
        """Return the UUIDs of the GPUs that claims are given, also of those that are not there now."""
        self._places = _counted(self._places, inventory)
        if self._places != self._written:
            self._write()
        self._log.standing("plugin.claims", "; ".join(self.problems))
        return _claimed(self._places, self.declared)

    @property
    def problems(self) -> tuple[str, ...]:
        """What of the list is not as it reads."""
        return tuple(self._find_problems()) if self._places else ()

    def _find_problems(self) -> Iterator[str]:
        known = {*map(str, range(len(self._places))), *(each.uuid for each in self._places)}
        if unknown := [each for each in self.declared if each not in known]:
            yield f"claims names {', '.join(unknown)}, and this node has no such GPU"
        claimed = len(_claimed(self._places, self.declared))
        if claimed == len(self._places):
            yield "claims names all GPUs of this node, and leaves none to the device plugin"
        elif not claimed:
            yield "claims names no GPU of this node"

    def _read(self) -> tuple[_Place, ...]:
        try:
            return _read_places(self._path, self.declared)
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            hint = "GPUs are counted anew; one that somebody has is withheld from everybody else all the same"
            self._log.warning(f"{self._path} cannot be read", problem=str(error)[:256], hint=hint)
            return ()

    def _write(self) -> None:
        document = {
            "claims": list(self.declared),
            "gpus": [{"uuid": each.uuid, "pciAddress": each.address} for each in self._places],
        }
        problem = ""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(document, indent=1) + "\n")
            self._written = self._places
        except OSError as error:
            problem = f"{self._path} cannot be written: {(error.strerror or str(error)).lower()}"
        hint = {"hint": "it is tried again; a daemon that starts meanwhile counts GPUs anew"} if problem else {}
        self._log.standing(_TOPIC, problem, **hint)

    def forget(self) -> None:
        """Remove what is remembered: nothing is divided any more."""
        self._log.standing("plugin.claims")
        with suppress(OSError):  # it is counted anew where another list is declared
            self._path.unlink(missing_ok=True)


def find_claimed(state_folder: Path, declared: Sequence[str], inventory: Inventory) -> frozenset[str]:
    """Return what a `Division` finds, for those who only look."""
    try:
        places = _read_places(state_folder / _NAME, tuple(declared))
    except (OSError, ValueError):
        places = ()
    return _claimed(_counted(places, inventory), declared)


def _read_places(path: Path, declared: tuple[str, ...]) -> tuple[_Place, ...]:
    """Return what is remembered of this list, nothing of another one; raises OSError, ValueError."""
    document = read_object(read_bounded(path, _MAX_BYTES + 1), _MAX_BYTES)
    rows = member(document, "gpus", list_of(members))
    places = tuple(_Place(member(row, "uuid", _TEXT), member(row, "pciAddress", _TEXT)) for row in rows)
    return places if member(document, "claims", list_of(_TEXT)) == declared else ()


def _claimed(places: tuple[_Place, ...], declared: Sequence[str]) -> frozenset[str]:
    return frozenset(each.uuid for index, each in enumerate(places) if str(index) in declared or each.uuid in declared)


def _counted(places: tuple[_Place, ...], inventory: Inventory) -> tuple[_Place, ...]:
    """Return the places with what an inventory says of them: known GPUs where they are, new ones at the end."""
    topology = inventory.topology  # also of GPUs that have no device node yet
    listed = zip(topology.ids, topology.places, strict=False)
    present = {uuid: place.address for uuid, place in listed}
    present |= {each.gpu.uuid: each.gpu.pci_address for each in inventory.devices}
    new = {address: uuid for uuid, address in present.items() if all(uuid != each.uuid for each in places)}
    counted = []
    for each in places:
        if each.uuid in present:
            counted.append(_Place(each.uuid, present[each.uuid]))
        elif each.address in new:
            counted.append(_Place(new.pop(each.address), each.address))
        else:
            counted.append(each)
    return (*counted, *(_Place(uuid, address) for address, uuid in sorted(new.items())))
