"""Which GPUs of a node are given by claims, where the device plugin gives the others: `claims` of node.json.

A GPU is named by its UUID or its index. Indices are counted once, when a list is declared, in the order of PCI
addresses, and then remembered in `division.json` of the state folder: a GPU that is lost, comes back or is added moves
no other one to the other interface. One that is put into the place of another has its index. Another list is counted
anew; so is that of another machine, which came here on a disk, where this one has none of its GPUs.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from plugin.base.documents import list_of, member, members, read_object, text
from plugin.base.errors import os_reason
from plugin.system.durable import read_bounded, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from plugin.base.log import Logger
    from plugin.devices.inventory import Inventory

_NAME = "division.json"
_TOPIC = "division between claims and device plugin"
_MAX_BYTES = 256 * 1024
_TEXT = text(253)
_MACHINE = "class/dmi/id/product_uuid"  # below /sys


class _Place(NamedTuple):
    """A GPU that has an index: which one, and where it was seen last."""

    uuid: str
    address: str


class _Remembered(NamedTuple):
    """What a list came to, by index, and on which machine; "" for not known."""

    places: tuple[_Place, ...] = ()
    machine: str = ""


class Division:
    """Of one list, `declared`: indices and UUIDs. Made and used in the event loop. `sys_root` is /sys."""

    def __init__(self, state_folder: Path, declared: Sequence[str], logger: Logger, sys_root: Path) -> None:
        self.declared = tuple(declared)
        self._path = state_folder / _NAME
        self._log = logger
        self._machine = _read_machine(sys_root)
        self._remembered = self._written = self._read()

    @property
    def _places(self) -> tuple[_Place, ...]:
        return self._remembered.places

    def find(self, inventory: Inventory) -> frozenset[str]:
        """Return the UUIDs of the GPUs that claims are given, also of those that are not there now."""
        present = _present(inventory)
        if _is_of_another(self._remembered, self._machine, present):
            self._log.warning(f"{self._path} is of another machine", hint="the GPUs of this one are counted anew")
        self._remembered = _counted(self._remembered, self._machine, present)
        if self._remembered != self._written:
            self._write()
        claimed = _claimed(self._places, self.declared)
        problems, hint = list(self.problems), {}
        if present and claimed and claimed.isdisjoint(present):
            problems.append("no GPU that claims names is there")
            hint = {"hint": f"if {self._path} is of another machine, remove it, and restart grapnel-node"}
        self._log.standing("plugin.claims", "; ".join(problems), **hint)
        return claimed

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

    def _read(self) -> _Remembered:
        try:
            return _read_remembered(self._path, self.declared)
        except FileNotFoundError:
            return _Remembered()
        except (OSError, ValueError) as error:
            hint = "GPUs are counted anew; one that somebody has is withheld from everybody else all the same"
            self._log.warning(f"{self._path} cannot be read", problem=str(error)[:256], hint=hint)
            return _Remembered()

    def _write(self) -> None:
        document = {
            "machine": self._remembered.machine,
            "claims": list(self.declared),
            "gpus": [{"uuid": each.uuid, "pciAddress": each.address} for each in self._places],
        }
        problem = ""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(self._path, json.dumps(document, indent=1) + "\n")
            self._written = self._remembered
        except OSError as error:
            problem = f"{self._path} cannot be written: {os_reason(error)}"
        hint = {"hint": "it is tried again; a daemon that starts meanwhile counts GPUs anew"} if problem else {}
        self._log.standing(_TOPIC, problem, **hint)

    def forget(self) -> None:
        """Remove what is remembered: nothing is divided any more."""
        self._log.standing("plugin.claims")
        with suppress(OSError):  # it is counted anew where another list is declared
            self._path.unlink(missing_ok=True)


def find_claimed(state_folder: Path, declared: Sequence[str], inventory: Inventory, sys_root: Path) -> frozenset[str]:
    """Return what a `Division` finds, for those who only look."""
    try:
        remembered = _read_remembered(state_folder / _NAME, tuple(declared))
    except (OSError, ValueError):
        remembered = _Remembered()
    return _claimed(_counted(remembered, _read_machine(sys_root), _present(inventory)).places, declared)


def _read_remembered(path: Path, declared: tuple[str, ...]) -> _Remembered:
    """Return what is remembered of this list, nothing of another one; raises OSError, ValueError."""
    document = read_object(read_bounded(path, _MAX_BYTES + 1), _MAX_BYTES)
    rows = member(document, "gpus", list_of(members))
    places = tuple(_Place(member(row, "uuid", _TEXT), member(row, "pciAddress", _TEXT)) for row in rows)
    is_this = member(document, "claims", list_of(_TEXT)) == declared
    return _Remembered(places, member(document, "machine", _TEXT, "")) if is_this else _Remembered()


def _read_machine(sys_root: Path) -> str:
    """Return what tells a machine from others, "" where it does not say."""
    try:
        return read_bounded(sys_root / _MACHINE, 64).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def _claimed(places: tuple[_Place, ...], declared: Sequence[str]) -> frozenset[str]:
    return frozenset(each.uuid for index, each in enumerate(places) if str(index) in declared or each.uuid in declared)


def _present(inventory: Inventory) -> dict[str, str]:
    """Return the PCI addresses of the GPUs that are there, by UUID."""
    topology = inventory.topology  # also of GPUs that have no device node yet
    listed = zip(topology.ids, topology.places, strict=False)
    found = {uuid: place.address for uuid, place in listed}
    return found | {each.gpu.uuid: each.gpu.pci_address for each in inventory.devices}


def _is_of_another(remembered: _Remembered, machine: str, present: Mapping[str, str]) -> bool:
    """Whether what is remembered is of another machine than the one of these GPUs, and none of them came here."""
    is_named_otherwise = "" != remembered.machine != machine != ""
    return is_named_otherwise and bool(present) and all(each.uuid not in present for each in remembered.places)


def _counted(remembered: _Remembered, machine: str, present: Mapping[str, str]) -> _Remembered:
    """Return what is remembered with what is there: known GPUs where they are, new ones at the end."""
    places = () if _is_of_another(remembered, machine, present) else remembered.places
    new = {address: uuid for uuid, address in present.items() if all(uuid != each.uuid for each in places)}
    counted = []
    for each in places:
        if each.uuid in present:
            counted.append(_Place(each.uuid, present[each.uuid]))
        elif each.address in new:
            counted.append(_Place(new.pop(each.address), each.address))
        else:
            counted.append(each)
    added = (_Place(uuid, address) for address, uuid in sorted(new.items()))
    return _Remembered((*counted, *added), (machine if present else "") or remembered.machine)
