"""Plans the kernel's part: settings of the running kernel, and what it is started with, which takes a reboot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from provision.planning.node_plan import Action, Disruption, FileContent, Item, Problem, Role, TuningVariables
from provision.planning.planner.drivers.holders import describe_holders
from provision.planning.planner.part import Declared, Part, plan_files
from provision.planning.render.tuning import (
    CMDLINE_PATH,
    GRUB_PATH,
    HUGEPAGES,
    NUMA_BALANCING,
    SYSCTL_PATH,
    TUNING_RECORD_PATH,
    LeavingArguments,
    TuningRecord,
    boot_arguments,
    has_iommu_arguments,
    parse_tuning_record,
    render_cmdline,
    render_grub,
    render_sysctl,
    render_tuning_record,
    running_values,
    told_together,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.declaration.fleet.facts.kernel import KernelState
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

_GIGANTIC: Final = "hugepagesz=1G"
_OF_VALUES: Final = {NUMA_BALANCING: "numaBalancing", HUGEPAGES: "hugepages 2Mi"}


def plan_tuning(facts: NodeFacts, stack: StackSpec) -> Part[TuningVariables]:
    """Return what gives the kernel its settings; those that are declared no more are given back.

    Beside a problem are the changes that would be made without it, as far as they are known.
    """
    values, arguments = running_values(stack.node.kernel), boot_arguments(stack.node.kernel, facts.node.architecture)
    is_recorded = facts.file(TUNING_RECORD_PATH) is not None
    impossible = tuple(_iommu_problems(facts, stack))
    if not values and not arguments and not is_recorded:
        return Part(problems=impossible)
    record = parse_tuning_record(facts.content(TUNING_RECORD_PATH))
    kernel = facts.kernel
    if kernel is None:
        sysctl = (FileContent(SYSCTL_PATH, render_sysctl(values)),) if values else ()
        return Part(plan_files(facts, Role.TUNING, sysctl), (_unreadable(facts),))
    unreadable = (_unreadable(facts),) if record is None and is_recorded else ()
    before, of_tuned = _until_booted(facts, record or TuningRecord()), tuple(_of_tuned(facts, kernel, arguments))
    arguments = _own(kernel, before, arguments)
    problems = (
        *unreadable,
        *impossible,
        *of_tuned,
        *_of_others(facts, kernel, before, arguments),
        *_problems(facts, kernel, values, (*arguments, *before.boot_arguments)),
    )
    if not problems and not values and not arguments and not is_recorded:
        return Part()
    if problems:
        is_known = values or arguments or (is_recorded and not unreadable)  # else: what would be given back
        return Part(_possible(facts, kernel, before, values, arguments) if is_known else (), problems)
    return _part(facts, kernel, before, values, arguments)


def _until_booted(facts: NodeFacts, record: TuningRecord) -> TuningRecord:
    """Return a record with what a run was about to take back, which may not have come to its end in this boot."""
    leaving = record.leaving
    if leaving is msgspec.UNSET or leaving.boot_id != facts.node.boot_id:
        return record
    return msgspec.structs.replace(record, boot_arguments=(*record.boot_arguments, *leaving.arguments))


def _own(kernel: KernelState, before: TuningRecord, wanted: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments that are grapnel's to tell: what the kernel has from others stays theirs.

    A size of pages and their number are told together, as the number is of the size before it.
    """
    pages = tuple(each for each in wanted if each.startswith("hugepages"))
    others = {*kernel.arguments} - {*before.boot_arguments}
    theirs = {each for each in wanted if each in others and each not in pages}
    if pages and " ".join(pages) in " ".join(kernel.arguments) and others.issuperset(pages):
        theirs.update(pages)
    return tuple(each for each in wanted if each not in theirs)


def _possible(
    facts: NodeFacts,
    kernel: KernelState,
    before: TuningRecord,
    values: Mapping[str, str],
    arguments: tuple[str, ...],
) -> tuple[Item, ...]:
    """Return the changes beside a problem: those to settings that the kernel has, and that it can be told."""
    present, is_declared = _present(kernel), bool(values or arguments)
    values = {name: value for name, value in values.items() if name in present}
    if _GIGANTIC in arguments and "1Gi" not in kernel.hugepages:
        place = arguments.index(_GIGANTIC)  # its number of pages comes behind it
        arguments = (*arguments[:place], *arguments[place + 2 :])
    if not kernel.boot_loader:
        arguments, before = (), msgspec.structs.replace(before, boot_arguments=())
    if is_declared and not (values or arguments):
        return ()
    return _part(facts, kernel, before, values, arguments).items


def _part(
    facts: NodeFacts,
    kernel: KernelState,
    before: TuningRecord,
    values: Mapping[str, str],
    arguments: tuple[str, ...],
) -> Part[TuningVariables]:
    present = _present(kernel)
    files = _files(facts, kernel, before, values, arguments)
    writes = plan_files(facts, Role.TUNING, files)
    absent = tuple(_removal(path) for path in _absent(kernel, values, arguments) if facts.file(path) is not None)
    given_back = {
        name: value
        for name, value in before.former.items()
        if name not in values and present.get(name) == before.values.get(name)
    }
    wanted = {name: value for name, value in (*values.items(), *given_back.items()) if present.get(name) != value}
    next_kernels = _next_kernels(facts, kernel, before, arguments)
    writes = (*writes, *plan_files(facts, Role.TUNING, next_kernels))
    tells = before.boot_arguments != arguments or any(
        item.target in {GRUB_PATH, CMDLINE_PATH} for item in (*writes, *absent)
    )
    reboots = not _is_started_so(kernel, arguments, before.boot_arguments)
    forgets = not values and not arguments
    items = (
        *writes,
        *absent,
        *(_setting(facts, name, present.get(name), value) for name, value in wanted.items()),
        *((_reboot(facts, arguments),) if reboots else ()),
        *((_removal(TUNING_RECORD_PATH),) if forgets else ()),
    )
    if not items:
        return Part(declared=Declared(files=files))
    written = {item.target for item in writes}
    variables = TuningVariables(
        tuning_files=tuple(file for file in (*files, *next_kernels) if file.path in written),
        tuning_absent=tuple(item.target for item in absent),
        tuning_values=wanted,
        tuning_boot_loader=kernel.boot_loader if tells or reboots else "",
        tuning_boot_arguments=arguments,
        tuning_boot_former=before.boot_arguments,
        tuning_boot_id=facts.node.boot_id if reboots else "",
        tuning_forget=forgets,
    )
    return Part(items, (), variables, declared=Declared(files=files))


def changes_hugepages(part: Part[TuningVariables]) -> bool:
    """Tell whether the number of huge pages changes, which the kubelet only sees when it starts."""
    return any(item.action is Action.SET and item.target == HUGEPAGES for item in part.items)


def _present(kernel: KernelState) -> dict[str, str]:
    balancing, pages = kernel.numa_balancing, kernel.hugepages.get("2Mi")
    return {
        **({} if balancing is None else {NUMA_BALANCING: str(balancing)}),
        **({} if pages is None else {HUGEPAGES: str(pages)}),
    }


def _files(
    facts: NodeFacts,
    kernel: KernelState,
    before: TuningRecord,
    values: Mapping[str, str],
    arguments: tuple[str, ...],
) -> tuple[FileContent, ...]:
    """Return the files as they are to be; what is remembered comes first."""
    if not values and not arguments:
        return ()
    present = _present(kernel)
    former = {name: before.former.get(name, present[name]) for name in values}
    gone = " ".join(each for each in told_together(before.boot_arguments) if each not in told_together(arguments))
    leaving = LeavingArguments(boot_id=facts.node.boot_id, arguments=tuple(gone.split())) if gone else before.leaving
    known = TuningRecord(values=dict(values), former=former, boot_arguments=arguments, leaving=leaving)
    record = FileContent(TUNING_RECORD_PATH, render_tuning_record(known))
    sysctl = (FileContent(SYSCTL_PATH, render_sysctl(values)),) if values else ()
    grub = (FileContent(GRUB_PATH, render_grub(arguments)),) if arguments and kernel.boot_loader == "grub" else ()
    return (record, *sysctl, *grub)


def _next_kernels(
    facts: NodeFacts, kernel: KernelState, before: TuningRecord, arguments: Sequence[str]
) -> tuple[FileContent, ...]:
    """Return what kernels that come later are started with, where a file says so: grubby knows those that are there."""
    state = facts.file(CMDLINE_PATH)
    if kernel.boot_loader != "grubby" or state is None or state.content is None:
        return ()
    text = render_cmdline(state.content, arguments, before.boot_arguments)
    return (FileContent(CMDLINE_PATH, text, state.mode),) if text != state.content else ()


def _absent(kernel: KernelState, values: Mapping[str, str], arguments: Sequence[str]) -> Iterator[str]:
    if not values:
        yield SYSCTL_PATH
    if not arguments or kernel.boot_loader != "grub":
        yield GRUB_PATH


def _is_started_so(kernel: KernelState, wanted: Sequence[str], former: Sequence[str]) -> bool:
    """Tell whether the kernel was started with what is wanted, and without what was wanted before."""
    has = kernel.arguments
    gone = {*former} - {*wanted, *kernel.tuned_arguments}
    return all(each in has for each in wanted) and not any(each in has for each in gone)


def _setting(facts: NodeFacts, name: str, present: str | None, value: str) -> Item:
    """Return the change of a running kernel's setting. Huge pages take memory that pods use."""
    drains = name == HUGEPAGES
    reason = f"{name} is {present}, and is to be {value} ({_OF_VALUES[name]})"
    return Item(
        role=Role.TUNING,
        action=Action.SET,
        target=name,
        from_=present,
        to=value,
        reason=reason + (describe_holders(facts) if drains else ""),
        disruption=Disruption.DRAIN if drains else Disruption.NONE,
    )


def _reboot(facts: NodeFacts, arguments: Sequence[str]) -> Item:
    wanted = " ".join(arguments)
    reason = f"the kernel is to be started with {wanted}" if wanted else "the kernel is to be started as before"
    return Item(
        role=Role.TUNING,
        action=Action.REBOOT,
        target="kernel",
        to=wanted or None,
        reason=reason + describe_holders(facts),
        disruption=Disruption.REBOOT,
    )


def _removal(path: str) -> Item:
    reason = f"{path} is not declared any more"
    return Item(role=Role.TUNING, action=Action.REMOVE, target=path, reason=reason)


def _problems(
    facts: NodeFacts, kernel: KernelState, values: Mapping[str, str], arguments: Sequence[str]
) -> Iterator[Problem]:
    node, present = facts.node.hostname, _present(kernel)
    for name in values:
        if name not in present:
            yield Problem(
                code="kernel-setting",
                message=f"the kernel of {node} has no {name} ({_OF_VALUES[name]})",
                hint="leave the key out for this node",
            )
    if _GIGANTIC in arguments and "1Gi" not in kernel.hugepages:
        yield Problem(
            code="kernel-setting",
            message=f"the kernel of {node} has no huge pages of 1 GiB",
            hint="leave hugepages 1Gi out for this node",
        )
    cmdline = facts.file(CMDLINE_PATH)
    if arguments and kernel.boot_loader == "grubby" and cmdline is not None and cmdline.content is None:
        yield Problem(
            code="kernel-setting",
            message=f"{CMDLINE_PATH} of {node}, which kernels that come are started with, is no text in UTF-8",
            hint="mend it, or leave the keys out for this node",
        )
    if arguments and not kernel.boot_loader:
        yield Problem(
            code="boot-loader-unknown",
            message=f"{node} has neither update-grub with /boot/grub/grub.cfg nor grubby to tell its kernel arguments",
            hint=f"add `{' '.join(arguments)}` to its kernel's command line yourself, and leave the keys out",
        )


def _of_tuned(facts: NodeFacts, kernel: KernelState, arguments: Sequence[str]) -> Iterator[Problem]:
    """Yield what tuned would have the last word about: its arguments come behind all others."""
    ours, theirs = _by_key(arguments), _by_key(kernel.tuned_arguments)
    for key in (key for key in ours if theirs.get(key, ours[key]) != ours[key]):
        yield Problem(
            code="kernel-arguments-of-tuned",
            message=f"tuned starts the kernel of {facts.node.hostname} with {key}={theirs[key]}, which "
            f"counts more than {key}={ours[key]}",
            hint="take it out of tuned's profile (`tuned-adm active` names it), or declare what that says",
        )


def _of_others(
    facts: NodeFacts, kernel: KernelState, before: TuningRecord, arguments: Sequence[str]
) -> Iterator[Problem]:
    """Yield which pages that others tell the kernel keep ours from being told.

    The kernel takes one number of a size, the first; and grubby takes away all arguments of the names that it is told.
    """
    told, is_grub = told_together(before.boot_arguments), kernel.boot_loader == "grub"
    ours = [each for each in told_together(arguments) if each.startswith(_GIGANTIC) and each not in told]
    theirs = (each for each in told_together(kernel.arguments) if "hugepages=" in each and each not in told)
    others = " ".join(each for each in theirs if (_GIGANTIC in each) is is_grub)
    for pages in ours if others and kernel.boot_loader else ():
        why = "and takes no second number of a size" if is_grub else f"which grubby would take away for {pages}"
        yield Problem(
            code="kernel-setting",
            message=f"the kernel of {facts.node.hostname} is told {others} by others, {why}",
            hint=f"tell it {pages} in the same place yourself, and reboot: what it is started with is taken for done",
        )


def _by_key(arguments: Sequence[str]) -> dict[str, str]:
    """Return values of arguments by their names; numbers of pages by their size as well."""
    found, size = {}, ""
    for key, _, value in (each.partition("=") for each in arguments):
        if key == "hugepagesz":
            size = f"hugepagesz={value} "
        else:
            found[f"{size}{key}" if key == "hugepages" else key] = value
    return found


def _iommu_problems(facts: NodeFacts, stack: StackSpec) -> Iterator[Problem]:
    if not has_iommu_arguments(stack.node.kernel, facts.node.architecture):
        yield Problem(
            code="kernel-setting",
            message=f"the IOMMU of {facts.node.hostname}, which has {facts.node.architecture}, cannot be switched off",
            hint="leave the key out for this node, or declare iommu: passthrough",
        )


def _unreadable(facts: NodeFacts) -> Problem:
    if facts.kernel is None:
        return Problem(
            code="kernel-setting",
            message=f"{facts.node.hostname} has not told its kernel's settings",
            hint="the collection and the controller may be of different versions: update both",
        )
    return Problem(
        code="tuning-record",
        message=f"{TUNING_RECORD_PATH} on {facts.node.hostname}, which says what grapnel has set, cannot be read",
        hint=f"remove it together with {SYSCTL_PATH} and {GRUB_PATH}, and apply again",
    )
