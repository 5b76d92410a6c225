"""Judges a GpuStack of a cluster: the spec of the file, without what only the machine of an operator has.

Whoever may write a GpuStack may not therefore read what lies beside the controller, or run programs there: keys
that name files or programs of the machine that runs grapnel are refused, but for files of one folder that the
controller's own administrator fills, and says where they may be sent to.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.base import decoding
from provision.controller.stacks.model import Stack, Unreadable, WhenDeleted
from provision.controller.stacks.secret_hosts import FILES
from provision.declaration.spec.beside import Beside
from provision.declaration.spec.known_part import as_far_as_known, known_part
from provision.declaration.spec.model import API_VERSION, SchedulerKind, StackSpec
from provision.declaration.spec.rules.every import judge_with_offers
from provision.declaration.spec.text.findings import Place, Severity, dotted
from provision.declaration.spec.validate import convert, examine
from provision.declaration.spec.values.label_selector import LabelSelector, Requirement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from provision.controller.stacks.secret_hosts import SecretHosts
    from provision.declaration.spec.model import Rollout
    from provision.declaration.spec.text.findings import Finding, KeyPath

SELECTOR: Final = "nodeSelector"
WHEN_DELETED: Final = "whenDeleted"
OF_CLUSTERS: Final = frozenset({SELECTOR, WHEN_DELETED})  # keys that the file does not have
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


def decode_stack(document: Mapping[str, Any], hosts: SecretHosts | None = None) -> Stack | Unreadable:
    """Return a stack as the API server has it, or everything that is wrong with it; what it is, nothing is raised.

    ``hosts`` are those to which Secrets may be sent, None for who only looks: the controller alone knows them.
    """
    metadata, spec = document["metadata"], document.get("spec")
    given = spec if isinstance(spec, dict) else {}
    content = {key: value for key, value in given.items() if key not in OF_CLUSTERS} if given else spec
    findings = examine(content, StackSpec, _Unplaced(), prefix=_SPEC) if isinstance(content, dict) else []
    known = known_part(content, {each.key for each in findings}, prefix=_SPEC) if findings else None
    reasons = [*_version(document.get("apiVersion", "")), *_told(content, findings)]
    selector, when_deleted = None, WhenDeleted.KEEP
    try:
        selector = read_selector(given.get(SELECTOR))
    except ValueError as error:
        reasons.append(f"spec.{SELECTOR}: {error}")
    try:
        when_deleted = WhenDeleted(given.get(WHEN_DELETED) or WhenDeleted.KEEP)
    except ValueError:
        reasons.append(f"spec.{WHEN_DELETED}: is {' or '.join(WhenDeleted)}")
    reasons += [] if known is None else unkept(known)
    spec_of, warnings = (None, ()) if reasons else _judge(convert(content, StackSpec), reasons, hosts)
    name, uid, generation = metadata["name"], metadata.get("uid", ""), metadata.get("generation", 0)
    is_going = metadata.get("deletionTimestamp") is not None
    if spec_of is None or selector is None:
        why = tuple(dict.fromkeys(reasons))
        return Unreadable(name=name, uid=uid, generation=generation, reasons=why, selector=selector, is_going=is_going)
    return Stack(
        name=name,
        uid=uid,
        generation=generation,
        spec=spec_of,
        selector=selector,
        when_deleted=when_deleted,
        is_going=is_going,
        warnings=warnings,
    )


def _judge(
    declared: StackSpec, reasons: list[str], hosts: SecretHosts | None
) -> tuple[StackSpec | None, tuple[str, ...]]:
    """Return what is declared, complete, with warnings; None where there are ``reasons`` not to, which are added."""
    reasons += local_keys(declared)
    reasons += () if hosts is None else hosts.refusals(declared.rollout)
    told = judge_with_offers(declared)
    complete = declared
    if not reasons:  # else it names files, and nothing that a stack names is read
        beside = Beside(_NOWHERE)
        complete, remarks = beside.complete(declared)
        told += remarks
        reasons += [f"{each.key}: {each.message}" for each in beside.findings]
    reasons += [_text(each) for each in told if each.severity is Severity.ERROR]
    warnings = tuple(_text(each) for each in told if each.severity is Severity.WARNING)
    return (None if reasons else complete), warnings


def _version(found: str) -> Iterator[str]:
    if found and found != API_VERSION:
        yield f"apiVersion is {found}, and this grapnel reads {API_VERSION}: upgrade the controller"


def unkept(known: StackSpec) -> list[str]:
    """Return the rules that a spec does not keep, as far as it is known (`known_part`); each begins with its key."""
    errors = (_text(each) for each in judge_with_offers(known) if each.severity is Severity.ERROR)
    return [*as_far_as_known(lambda: local_keys(known)), *errors]


def _told(content: object, findings: Iterable[Finding]) -> Iterator[str]:
    if not isinstance(content, dict):
        yield "spec is missing"
    for finding in findings:
        yield f"{finding.key}: {finding.message}{f' ({finding.hint})' if finding.hint else ''}"


def _text(remark: Any) -> str:
    return f"{dotted(_SPEC + remark.path)}: {remark.message}{f' ({remark.hint})' if remark.hint else ''}"


def read_selector(value: object) -> LabelSelector:
    """Return a LabelSelector of meta/v1; raises ValueError where it is none. An empty one selects every Node."""
    if value is None:
        raise ValueError("is missing (`{}` selects every Node)")
    if not isinstance(value, dict) or not value.keys() <= {"matchLabels", "matchExpressions"}:
        raise ValueError("is no label selector: it has matchLabels, matchExpressions, or both")
    try:
        labels = decoding.convert(value.get("matchLabels") or {}, dict[str, str])
        expressions = decoding.convert(value.get("matchExpressions") or [], list[_Expression])
    except msgspec.ValidationError as error:
        raise ValueError(f"is no label selector: {error}") from error
    found = [Requirement(key, frozenset({text})) for key, text in labels.items()]
    for each in expressions:
        key, operator, values = each.key, each.operator, each.values or ()
        if operator not in _OPERATORS:
            raise ValueError(f"'{operator}' is no operator: {', '.join(_OPERATORS)}")
        if bool(values) is not (operator in {"In", "NotIn"}):
            raise ValueError(f"{operator} of {key} has {'values' if values else 'no values'}")
        found.append(Requirement(key, frozenset(values) or None, is_refused=operator in {"NotIn", "DoesNotExist"}))
    return LabelSelector(tuple(found))


class _Expression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    key: str = ""
    operator: str = ""
    values: tuple[str, ...] | None = None


_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")


# Finds what a declaration says of the machine that runs grapnel, which in a cluster is the controller's pod.

_SCHEDULERS: Final = frozenset({SchedulerKind.AUTO, SchedulerKind.KUBERNETES})


def local_keys(spec: StackSpec) -> Iterator[str]:
    """Yield every key that a cluster cannot have, with what to write instead."""
    repository, runfile, scheduler = spec.driver.repository, spec.driver.runfile, spec.scheduler
    if repository is not None and repository.folder is not None:
        yield "spec.driver.repository.folder: a bundle lies on an operator's machine (declare a repository's url)"
    if runfile is not None and runfile.path is not None:
        yield "spec.driver.runfile.path: the file lies on an operator's machine (declare its url)"
    if spec.mig.config_file is not None:
        yield "spec.mig.configFile: a file has no place in a cluster (write its layouts into spec.mig.config)"
    for index, source in enumerate(spec.plugin.device_classes):
        if isinstance(source, str) and source.endswith(".json"):
            yield f"spec.plugin.deviceClasses[{index}]: a file has no place in a cluster (write name and content)"
    if scheduler.kind not in _SCHEDULERS or scheduler.slurm is not None or scheduler.commands is not None:
        yield "spec.scheduler: nodes of other schedulers are upgraded by `grapnel apply` (leave it out)"
    yield from _groups(spec.rollout)
    yield from _files(spec.rollout)


def _groups(rollout: Rollout) -> Iterator[str]:
    for index, wave in enumerate(rollout.waves):
        if wave.groups:
            yield f"spec.rollout.waves[{index}].groups: a cluster has no groups of an inventory (list hosts, or a size)"
    for key, places in (("domains", rollout.domains), ("zones", rollout.zones)):
        if places is not None and places.groups:
            yield f"spec.rollout.{key}.groups: a cluster has no groups of an inventory (write nodeLabel)"


def _files(rollout: Rollout) -> Iterator[str]:
    """Yield files that whoever may write a GpuStack could have sent somewhere, such as the controller's own token."""
    named = [
        *((f"gates[{index}].tokenFile", each.token_file) for index, each in enumerate(rollout.gates)),
        *((f"gates[{index}].caFile", each.ca_file) for index, each in enumerate(rollout.gates)),
        *((f"notify[{index}].urlFile", each.url_file) for index, each in enumerate(rollout.notify)),
        *((f"notify[{index}].secretFile", each.secret_file) for index, each in enumerate(rollout.notify)),
    ]
    for key, path in named:
        if path is not None and (".." in path or not PurePosixPath(path).is_relative_to(FILES)):
            yield f"spec.rollout.{key}: {path} is not below {FILES} of the controller's pod (mount it there)"
