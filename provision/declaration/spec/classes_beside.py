"""Reads the files of device classes that a declaration names, and checks each as the node daemon would read it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import provision
from provision.base.regular_file import read_beginning
from provision.declaration.spec.model import DeviceClass
from provision.declaration.spec.model.device_class import DeviceClassFile
from provision.declaration.spec.rules.devices import judge_class
from provision.declaration.spec.text.document import UNREADABLE, read_document
from provision.declaration.spec.text.findings import Finding, Place, Severity, dotted
from provision.declaration.spec.validate import convert, examine, nearest

MAX_BYTES: Final = 64 * 1024
SUFFIX = ".json"


def find_ready() -> dict[str, Path]:
    """Return the device classes that come with grapnel, in a checkout or installed, by the names for declarations."""
    package = Path(provision.__file__).parent
    folders = (package.parent / "deploy" / "devices", package / "_devices")
    return {path.stem: path for folder in folders for path in sorted(folder.glob(f"*{SUFFIX}"))}


@dataclass(frozen=True)
class ReadClass:
    """A class as the node is to have it, None where its file cannot be used; `described` is what it says.

    `remark` is about the key that names it, None where the file's own findings say it, or nothing is wrong.
    """

    written: DeviceClass | None = None
    described: DeviceClassFile | None = None
    remark: str = ""
    hint: str = ""


@dataclass
class ClassFiles:
    """The files below `folder`, and those that come with grapnel; `findings` are about what stands in them."""

    folder: Path
    findings: list[Finding] = field(default_factory=list)
    _known: dict[str | DeviceClass, ReadClass] = field(default_factory=dict)

    def read(self, source: str | DeviceClass) -> ReadClass:
        """Return the class of a name, a path or a text; each is read once."""
        if source not in self._known:
            self._known[source] = (
                self._read_text(source) if isinstance(source, DeviceClass) else self._read_file(source)
            )
        return self._known[source]

    def _read_file(self, source: str) -> ReadClass:
        if source.endswith(SUFFIX):
            place = self.folder / source
        else:
            ready = find_ready()
            if source not in ready:
                near = nearest(source, list(ready))
                hint = (
                    f"did you mean {near}?"
                    if near
                    else f"there are {', '.join(ready)}; the path of a file ends in .json"
                )
                return ReadClass(remark=f"no class '{source}' comes with grapnel", hint=hint)
            place = ready[source]
        try:
            data = read_beginning(place, MAX_BYTES + 1)
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            return ReadClass(
                remark=f"{place} cannot be read: {reason}", hint="write a path from the declaration's folder"
            )
        return self._parse(place.stem, str(place), data)

    def _read_text(self, source: DeviceClass) -> ReadClass:
        return self._parse(source.name, f"{source.name}{SUFFIX} in the declaration", source.content.encode())

    def _parse(self, name: str, origin: str, data: bytes) -> ReadClass:
        findings, described = _examine(origin, data)
        self.findings += findings
        if described is None:
            return ReadClass()
        return ReadClass(DeviceClass(name=name, content=data.decode()), described)


def _examine(origin: str, data: bytes) -> tuple[list[Finding], DeviceClassFile | None]:
    """Return what is wrong with a text, and what it says where nothing is."""
    if len(data) > MAX_BYTES:
        return [_finding(Place(origin), f"is larger than {MAX_BYTES // 1024} KiB", "a device class is small")], None
    try:
        json.loads(data)
    except (ValueError, RecursionError) as problem:
        place = _place_of(origin, problem)
        return [
            _finding(
                place, f"is not JSON: {getattr(problem, 'msg', str(problem)).lower()}", "the node daemon reads JSON"
            )
        ], None
    document = read_document(data.replace(b"\t", b" "), origin)  # which knows where each value stands
    findings = list(document.findings)
    if document.content is not UNREADABLE:
        findings += examine(document.content, DeviceClassFile, document)
    if findings:
        return findings, None
    described = convert(document.content, DeviceClassFile)
    findings = [
        Finding(each.severity, document.value_place(each.path), dotted(each.path), each.message, each.hint)
        for each in judge_class(described)
    ]
    return findings, None if findings else described


def _place_of(origin: str, problem: BaseException) -> Place:
    if isinstance(problem, json.JSONDecodeError):
        lines = problem.doc.splitlines()
        text = lines[problem.lineno - 1] if problem.lineno <= len(lines) else ""
        return Place(origin, problem.lineno, problem.colno, 1, text)
    return Place(origin)


def _finding(place: Place, message: str, hint: str) -> Finding:
    return Finding(Severity.ERROR, place, "", message, hint)
