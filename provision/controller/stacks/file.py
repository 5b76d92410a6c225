"""Reads a GpuStack of a cluster from a file, before it is applied: every error with its place in the text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from provision.controller.stacks.decode import OF_CLUSTERS, SELECTOR, decode_stack, read_selector, unkept
from provision.controller.stacks.model import Stack, Unreadable
from provision.declaration.spec.known_part import known_part
from provision.declaration.spec.load import failed, read_file
from provision.declaration.spec.model import GpuStack
from provision.declaration.spec.text.document import UNREADABLE, read_document
from provision.declaration.spec.text.findings import Finding, Severity, dotted
from provision.declaration.spec.validate import examine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from provision.declaration.spec.text.document import Document
    from provision.declaration.spec.text.findings import KeyPath

_PART: Final = re.compile(r"\.?([A-Za-z_][A-Za-z0-9_]*)|\[(\d+)\]")


def read_stack_file(path: Path) -> Document | None:
    """Return the text of a file that declares a GpuStack of a cluster: one with a nodeSelector. None for any other.

    Raises DeclarationError where the file cannot be read; what is wrong with its text is found later.
    """
    document = read_document(read_file(path), str(path))
    content = document.content
    spec = content.get("spec") if isinstance(content, dict) else None
    return document if isinstance(spec, dict) and SELECTOR in spec else None


def read_stack_text(text: bytes, name: str) -> Document:
    """Return the text of a GpuStack that is to be written as the file ``name``."""
    return read_document(text, name)


def judge_stack(document: Document) -> tuple[Stack, list[Finding]]:
    """Return the GpuStack of a text and its warnings; raises DeclarationError with everything that is wrong with it.

    What an API server adds to an object (more of metadata, a status) is passed over, so that a stack that was read from
    one is a file as well.
    """
    content: Any = document.content
    findings = [*document.findings, *_examine(document)]
    if findings:
        raise failed([*findings, *_unkept(document, findings)])
    name = content["metadata"]["name"]
    found = decode_stack({**content, "metadata": {"name": name}})
    if isinstance(found, Unreadable):
        raise failed([_placed(document, Severity.ERROR, reason) for reason in found.reasons])
    return found, [_placed(document, Severity.WARNING, reason) for reason in found.warnings]


def _examine(document: Document) -> Iterator[Finding]:
    content: Any = document.content
    if content is UNREADABLE:
        return
    metadata, spec = content.get("metadata"), content["spec"]
    known = {key: value for key, value in content.items() if key != "status"}
    known["spec"] = {key: value for key, value in spec.items() if key not in OF_CLUSTERS}
    if isinstance(metadata, dict):
        known["metadata"] = {key: value for key, value in metadata.items() if key == "name"}
    yield from examine(known, GpuStack, document)
    if not isinstance(metadata, dict) or not metadata.get("name"):
        place = document.value_place(("metadata",))
        hint = "add `metadata: {name: training}`, or whatever it is called"
        yield Finding(Severity.ERROR, place, "metadata.name", "a GpuStack of a cluster needs a name", hint)
    try:
        read_selector(spec[SELECTOR])
    except ValueError as error:
        path = ("spec", SELECTOR)
        yield Finding(Severity.ERROR, document.value_place(path), dotted(path), str(error))


def _unkept(document: Document, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Yield the rules across keys that what is right of the text does not keep."""
    content: Any = document.content
    spec = {key: value for key, value in content["spec"].items() if key not in OF_CLUSTERS}
    known = known_part(spec, {each.key for each in findings}, prefix=("spec",))
    for reason in () if known is None else unkept(known):
        yield _placed(document, Severity.ERROR, reason)


def _placed(document: Document, severity: Severity, reason: str) -> Finding:
    """Return a reason, which begins with its key, as a finding with the place of that key."""
    key, colon, message = reason.partition(": ")
    path: KeyPath = tuple(int(number) if number else word for word, number in _PART.findall(key))
    if not colon or dotted(path) != key:
        return Finding(severity, document.value_place(("spec",)), "spec", reason)
    return Finding(severity, document.value_place(path), key, message)
