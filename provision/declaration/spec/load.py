"""Reads a declaration file: bytes on disk in, a GpuStack with its places out, or every error of it at once."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from provision.base.errors import os_reason
from provision.base.regular_file import read_beginning
from provision.declaration.spec.beside import Beside
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.known_part import as_far_as_known, known_part
from provision.declaration.spec.model import GpuStack
from provision.declaration.spec.other_tools import recognize
from provision.declaration.spec.rules.every import judge_with_offers
from provision.declaration.spec.text.document import MAX_BYTES, UNREADABLE, Document, read_document
from provision.declaration.spec.text.findings import Finding, KeyPath, Severity, dotted, in_reading_order
from provision.declaration.spec.validate import convert, examine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.declaration.spec.model import StackSpec

SPEC: KeyPath = ("spec",)
KEYS: Final = frozenset(each.encode_name for each in msgspec.structs.fields(GpuStack))


@dataclass(frozen=True)
class Declaration:
    """A declaration that fits the model; `document` knows where each of its keys was written."""

    stack: GpuStack
    document: Document


def load_declaration(path: Path) -> Declaration:
    """Return the declaration of a file; raises DeclarationError with every error that the text has by itself.

    Rules across keys are not looked at: a level of the inventory may still say what the file leaves open.
    """
    document, findings = read_and_examine(path)
    if findings:
        raise failed(findings)
    return Declaration(convert(document.content, GpuStack), document)


def load_alone(path: Path) -> tuple[Declaration, list[Finding]]:
    """Return the declaration of a file to which no inventory adds, and its warnings; raises DeclarationError.

    The error has everything that is wrong: also the rules across keys that what is right of the text does not keep.
    """
    document, findings = read_and_examine(path)
    if findings:
        raise failed([*findings, *_judge_known(document, findings)])
    declaration = Declaration(convert(document.content, GpuStack), document)
    return declaration, judge_alone(declaration)


def read_and_examine(path: Path) -> tuple[Document, list[Finding]]:
    """Return the text of a declaration file, and every error that it has by itself."""
    document = read_document(read_file(path), str(path))
    findings = list(document.findings)
    if document.content is not UNREADABLE:
        findings += [_with_hint(each) for each in examine(document.content, GpuStack, document)]
    return document, findings


def known_spec(document: Document, findings: Iterable[Finding]) -> StackSpec | None:
    """Return what is known of the spec of a text with these errors, None where that is nothing."""
    content = document.content
    if not isinstance(content, dict):
        return None
    wrong = {each.key for each in findings if each.key}
    return known_part(content.get("spec"), wrong, prefix=SPEC, strays=content.keys() - KEYS)


def _judge_known(document: Document, findings: Iterable[Finding]) -> list[Finding]:
    spec = known_spec(document, findings)
    return [] if spec is None else _judge(document, spec)


def _with_hint(finding: Finding) -> Finding:
    """Return a finding with what to do about the one key that a declaration has in a cluster alone."""
    if finding.key != "spec.nodeSelector":
        return finding
    hint = "this is a GpuStack of a cluster: `kubectl apply` it, and see what that brings with `grapnel plan -f`"
    return replace(finding, hint=hint)


def judge_alone(declaration: Declaration) -> list[Finding]:
    """Return the warnings of a declaration to which no inventory adds; raises DeclarationError with its errors."""
    findings = in_reading_order(_judge(declaration.document, declaration.stack.spec))
    if any(each.severity is Severity.ERROR for each in findings):
        raise failed(findings)
    return findings


def _judge(document: Document, spec: StackSpec) -> list[Finding]:
    """Return what the rules across keys say of a spec, as far as it is known."""
    beside = Beside(Path(document.name).parent)
    remarks = (
        *judge_with_offers(spec),
        *as_far_as_known(lambda: beside.judge(spec)),
    )
    told = (
        Finding(
            each.severity, document.value_place(SPEC + each.path), dotted(SPEC + each.path), each.message, each.hint
        )
        for each in remarks
    )
    return [*told, *beside.findings]


def failed(findings: Iterable[Finding]) -> DeclarationError:
    """Return the error that carries these findings."""
    ordered = in_reading_order(findings)
    errors = [each for each in ordered if each.severity is Severity.ERROR]
    sources = sorted({each.place.source for each in errors})
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    return DeclarationError(f"{count} in {', '.join(sources)}", ordered)


def read_file(path: Path) -> bytes:
    """Return the beginning of a declaration file.

    Raises DeclarationError where there is none, it cannot be read, or it is a file of another tool.
    """
    try:
        content = read_beginning(path, MAX_BYTES + 1)
    except FileNotFoundError as error:
        hint = f"`grapnel init -f {path}` writes one to start from; `--file` names another"
        raise DeclarationError(f"{path} does not exist", (), hint=hint) from error
    except OSError as error:
        hint = "save the output of a program to a file first" if error.errno == errno.EINVAL else ""
        reason = os_reason(error)
        raise DeclarationError(f"{path} cannot be read: {reason}", (), hint=hint) from error
    if (other := recognize(content.decode("utf-8", "replace"), str(path))) is not None:
        raise DeclarationError(f"{path} is {other.what}, not a declaration", (), hint=other.hint)
    return content
