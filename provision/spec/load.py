"""Reads a declaration file: bytes on disk in, a GpuStack with its places out, or every error of it at once."""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from provision.regular_file import read_beginning
from provision.spec.beside import Beside
from provision.spec.document import MAX_BYTES, UNREADABLE, Document, read_document
from provision.spec.errors import DeclarationError
from provision.spec.findings import Finding, KeyPath, Severity, dotted, in_reading_order
from provision.spec.model import GpuStack
from provision.spec.offers import judge_offers
from provision.spec.rules import judge
from provision.spec.validate import convert, examine

if TYPE_CHECKING:
    from collections.abc import Iterable

SPEC: KeyPath = ("spec",)


@dataclass(frozen=True)
class Declaration:
    """A declaration that fits the model; `document` knows where each of its keys was written."""

    stack: GpuStack
    document: Document


def load_declaration(path: Path) -> Declaration:
    """Return the declaration of a file; raises DeclarationError with every error that the text has by itself.

    Rules across keys are not looked at: a level of the inventory may still say what the file leaves open.
    """
    document = read_document(read_file(path), str(path))
    findings = list(document.findings)
    if document.content is not UNREADABLE:
        findings += [_with_hint(each) for each in examine(document.content, GpuStack, document)]
    if findings:
        raise failed(findings)
    return Declaration(convert(document.content, GpuStack), document)


def _with_hint(finding: Finding) -> Finding:
    """Return a finding with what to do about the one key that a declaration has in a cluster alone."""
    if finding.key != "spec.nodeSelector":
        return finding
    hint = "this is a GpuStack of a cluster: `kubectl apply` it, and see what that brings with `grapnel plan -f`"
    return replace(finding, hint=hint)


def judge_alone(declaration: Declaration) -> list[Finding]:
    """Return the warnings of a declaration to which no inventory adds; raises DeclarationError with its errors."""
    document, spec = declaration.document, declaration.stack.spec
    beside = Beside(Path(document.name).parent)
    _, remarks = beside.complete(spec)
    told = (
        Finding(
            each.severity, document.value_place(SPEC + each.path), dotted(SPEC + each.path), each.message, each.hint
        )
        for each in (*judge(spec), *judge_offers(spec.tenancy, [spec]), *remarks)
    )
    findings = in_reading_order([*told, *beside.findings])
    if any(each.severity is Severity.ERROR for each in findings):
        raise failed(findings)
    return findings


def failed(findings: Iterable[Finding]) -> DeclarationError:
    """Return the error that carries these findings."""
    ordered = in_reading_order(findings)
    errors = [each for each in ordered if each.severity is Severity.ERROR]
    sources = sorted({each.place.source for each in errors})
    count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
    return DeclarationError(f"{count} in {', '.join(sources)}", ordered)


def read_file(path: Path) -> bytes:
    """Return the beginning of a declaration file; raises DeclarationError where there is none, or it cannot be read."""
    try:
        return read_beginning(path, MAX_BYTES + 1)
    except FileNotFoundError as error:
        hint = f"`grapnel init {path}` writes one to start from; `--file` names another"
        raise DeclarationError(f"{path} does not exist", (), hint=hint) from error
    except OSError as error:
        hint = "save the output of a program to a file first" if error.errno == errno.EINVAL else ""
        reason = (error.strerror or str(error)).lower()
        raise DeclarationError(f"{path} cannot be read: {reason}", (), hint=hint) from error
