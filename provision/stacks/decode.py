"""Judges a GpuStack of a cluster: the spec of the file, without what only the machine of an operator has.

Whoever may write a GpuStack is not somebody who may read what lies beside the controller, or run programs there: keys
that name files or programs of the machine that runs grapnel are refused, but for files of one folder that the
controller's own administrator fills.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from provision.spec.beside import Beside
from provision.spec.findings import Place, Severity, dotted
from provision.spec.label_selector import LabelSelector, Requirement
from provision.spec.model import API_VERSION, StackSpec
from provision.spec.offers import judge_offers
from provision.spec.rules import judge
from provision.spec.validate import convert, examine
from provision.stacks.local_keys import local_keys
from provision.stacks.model import Stack, Unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.spec.findings import KeyPath

SELECTOR: Final = "nodeSelector"
_SPEC: Final[KeyPath] = ("spec",)
_NOWHERE: Final = Path("/nonexistent")  # a declaration in a cluster has no folder


class _Unplaced:
    """A value that came from an API: it has no lines."""

    def key_place(self, path: KeyPath) -> Place:
        return Place(dotted(path))

    def value_place(self, path: KeyPath) -> Place:
        return Place(dotted(path))

    def written(self, path: KeyPath) -> str | None:
        del path
        return None


def decode_stack(document: Mapping[str, Any]) -> Stack | Unreadable:
    """Return a stack as the API server has it, or everything that is wrong with it; what it is, nothing is raised."""
    metadata = document["metadata"]
    name, uid, generation = metadata["name"], metadata.get("uid", ""), metadata.get("generation", 0)
    is_going = metadata.get("deletionTimestamp") is not None
    spec = document.get("spec")
    content = {key: value for key, value in spec.items() if key != SELECTOR} if isinstance(spec, dict) else spec
    reasons = [*_version(document.get("apiVersion", "")), *_examine(content)]
    selector = LabelSelector()
    try:
        selector = read_selector(spec.get(SELECTOR) if isinstance(spec, dict) else None)
    except ValueError as error:
        reasons.append(f"spec.{SELECTOR}: {error}")
    if reasons:
        return Unreadable(name=name, uid=uid, generation=generation, reasons=tuple(reasons), is_going=is_going)
    declared = convert(content, StackSpec)
    reasons = [*local_keys(declared)]
    told = [*judge(declared), *judge_offers(declared.tenancy, [declared])]
    complete = declared
    if not reasons:  # else it names files, and nothing that a stack names is read
        beside = Beside(_NOWHERE)
        complete, remarks = beside.complete(declared)
        told += remarks
        reasons += [f"{each.key}: {each.message}" for each in beside.findings]
    reasons += [_text(each) for each in told if each.severity is Severity.ERROR]
    if reasons:
        reasons = list(dict.fromkeys(reasons))
        return Unreadable(name=name, uid=uid, generation=generation, reasons=tuple(reasons), is_going=is_going)
    return Stack(
        name=name,
        uid=uid,
        generation=generation,
        spec=complete,
        selector=selector,
        is_going=is_going,
        warnings=tuple(_text(each) for each in told if each.severity is Severity.WARNING),
    )


def _version(found: str) -> Iterator[str]:
    if found and found != API_VERSION:
        yield f"apiVersion is {found}, and this grapnel reads {API_VERSION}: upgrade the controller"


def _examine(content: object) -> Iterator[str]:
    if not isinstance(content, dict):
        yield "spec is missing"
        return
    for finding in examine(content, StackSpec, _Unplaced(), prefix=_SPEC):
        yield f"{finding.key}: {finding.message}{f' ({finding.hint})' if finding.hint else ''}"


def _text(remark: Any) -> str:  # noqa: ANN401 - a Remark
    return f"{dotted(_SPEC + remark.path)}: {remark.message}{f' ({remark.hint})' if remark.hint else ''}"


def read_selector(value: object) -> LabelSelector:
    """Return a LabelSelector of meta/v1; raises ValueError where it is none. An empty one selects every Node."""
    if value is None:
        raise ValueError("is missing (`{}` selects every Node)")
    if not isinstance(value, dict) or not value.keys() <= {"matchLabels", "matchExpressions"}:
        raise ValueError("is no label selector: it has matchLabels, matchExpressions, or both")
    found = [Requirement(key, frozenset({text})) for key, text in (value.get("matchLabels") or {}).items()]
    for each in value.get("matchExpressions") or ():
        key, operator, values = each.get("key", ""), each.get("operator", ""), each.get("values") or ()
        if operator not in _OPERATORS:
            raise ValueError(f"'{operator}' is no operator: {', '.join(_OPERATORS)}")
        if bool(values) is not (operator in {"In", "NotIn"}):
            raise ValueError(f"{operator} of {key} has {'values' if values else 'no values'}")
        found.append(Requirement(key, frozenset(values) or None, is_refused=operator in {"NotIn", "DoesNotExist"}))
    return LabelSelector(tuple(found))


_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
