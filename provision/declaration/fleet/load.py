"""Puts the fleet together: declaration file and inventory in, nodes with their effective declarations out.

Everything that is wrong, in the file and in every level of the inventory, is found before anything is reported.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from provision.base.regular_file import read_beginning
from provision.declaration.fleet.ansible import export_inventory, run_program
from provision.declaration.fleet.endpoint import Endpoint
from provision.declaration.fleet.errors import InventoryError
from provision.declaration.fleet.inventory import VARIABLE, Host, Inventory, parse_inventory
from provision.declaration.fleet.levels import Variable, merge_known, merge_node, said
from provision.declaration.fleet.model import Fleet, FleetNode, Level, Origin
from provision.declaration.fleet.waves import judge_domain, judge_selected, judge_shared, members_by_group
from provision.declaration.spec.beside import Beside
from provision.declaration.spec.known_part import as_far_as_known
from provision.declaration.spec.load import KEYS, SPEC, Declaration, failed, read_and_examine
from provision.declaration.spec.model import GpuStack, StackSpec
from provision.declaration.spec.rules.every import judge
from provision.declaration.spec.rules.offers import judge_offers
from provision.declaration.spec.rules.remark import Remark
from provision.declaration.spec.text.document import MAX_BYTES, read_document
from provision.declaration.spec.text.excerpt import few
from provision.declaration.spec.text.findings import Finding, KeyPath, Place, Severity, dotted, in_reading_order
from provision.declaration.spec.validate import convert, examine, nearest

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from provision.declaration.fleet.ansible import InventoryProgram
    from provision.declaration.fleet.levels import Contribution
    from provision.declaration.spec.text.document import Document

_PREFIX: KeyPath = (VARIABLE,)


def load(
    file: Path,
    inventories: Sequence[str],
    *,
    limit: str,
    directory: Path,
    environ: Mapping[str, str],
    run: InventoryProgram = run_program,
) -> Fleet:
    """Return the selected machines; raises DeclarationError with every finding, or InventoryError.

    `inventories` come from `choose_inventories`, `limit` is a host pattern of Ansible, `run` reads the inventory.
    """
    if not inventories:
        hint = "name one with `--inventory`; by default inventory[.yaml], hosts.yaml (or .yml) or ansible.cfg's is read"
        raise InventoryError("there is no inventory", hint=hint)
    document, findings = read_and_examine(file)
    inventory = read_inventory(inventories, limit=limit, directory=directory, environ=environ, run=run)
    if findings:
        broken = [*findings, *_examine_variables(inventory)]
        raise failed([*broken, *_judge_known(document, inventory, broken)])
    declaration = Declaration(convert(document.content, GpuStack), document)
    return assemble(declaration, inventory, inventories, is_whole=not limit)


def assemble(
    declaration: Declaration, inventory: Inventory, inventories: Sequence[str], *, is_whole: bool = True
) -> Fleet:
    """Return the fleet of a declaration and an inventory; raises DeclarationError.

    Every level must be valid by itself before rules are judged on what the levels add up to. Names of other hosts are
    judged where the inventory `is_whole`, with all of its hosts.
    """
    broken = list(_examine_variables(inventory))
    if broken:
        raise failed([*broken, *_judge_known(declaration.document, inventory, broken)])
    merged = tuple(_merge_nodes(declaration, inventory))
    beside = Beside(Path(declaration.document.name).parent)
    completed = [beside.complete(node.stack) for node in merged]
    late = [remarks for _, remarks in completed]
    remarks = _judge_nodes(merged, declaration.document, late, is_whole=is_whole)
    findings = in_reading_order([*remarks.findings(len(merged)), *beside.findings])
    nodes = tuple(replace(node, stack=stack) for node, (stack, _) in zip(merged, completed, strict=True))
    if any(each.severity is Severity.ERROR for each in findings):
        raise failed(findings)
    return Fleet(declaration.stack, nodes, tuple(inventories), tuple(findings))


def without_inventory(declaration: Declaration) -> FleetNode:
    """Return what a declaration says to a node to which no inventory adds anything."""
    return merge_node(Host("every node", (), Endpoint("")), [_said_in_file(declaration.document)])


def read_inventory(
    inventories: Sequence[str],
    *,
    limit: str,
    directory: Path,
    environ: Mapping[str, str],
    run: InventoryProgram = run_program,
) -> Inventory:
    """Return the inventory; raises InventoryError where it is broken, empty, or has no host for a part of `limit`."""
    try:
        answer = export_inventory(inventories, limit=limit, directory=directory, environ=environ, run=run)
    except InventoryError as error:
        raise _with_place(error, inventories) from error
    inventory = parse_inventory(answer.text)
    if limit and (answer.unmatched or not inventory.hosts):
        everything = export_inventory(inventories, limit="", directory=directory, environ=environ)
        wrong = answer.unmatched[0] if answer.unmatched else limit
        raise _no_match(wrong, parse_inventory(everything.text))
    if not inventory.hosts:
        hint = "add hosts to it, as for any Ansible playbook"
        raise InventoryError(f"inventory {', '.join(inventories)} names no host", hint=hint)
    return inventory


def _no_match(wrong: str, inventory: Inventory) -> InventoryError:
    names = [host.name for host in inventory.hosts]
    groups = sorted({group for host in inventory.hosts for group in host.groups})
    near = nearest(wrong, [*names, *groups])
    hint = f"did you mean {near}?" if near else f"hosts: {few(names)}; groups: {few(groups)}"
    return InventoryError(f"no host or group of the inventory matches '{wrong}'", hint=hint)


def _with_place(error: InventoryError, inventories: Sequence[str]) -> InventoryError:
    """Return the error with the place of a broken group_vars or host_vars file, about which Ansible is silent."""
    for path in _variable_files(inventories):
        document = read_document(read_beginning(path, MAX_BYTES + 1), str(path))
        if document.is_broken and not document.lines[0].startswith("$ANSIBLE_VAULT"):
            found = document.findings[0]
            return InventoryError(f"inventory {found.place}: {found.message}", hint=found.hint or error.hint)
    return error


def _variable_files(inventories: Sequence[str]) -> Iterator[Path]:
    for source in inventories:
        folder = Path(source) if Path(source).is_dir() else Path(source).parent
        for name in ("group_vars", "host_vars"):
            for path in sorted((folder / name).rglob("*")):
                if path.is_file() and path.suffix in {"", ".yml", ".yaml", ".json"}:
                    yield path


def _examine_variables(inventory: Inventory) -> Iterator[Finding]:
    """Yield what is wrong with the variable of each group and host, by itself."""
    for group, stack in inventory.group_stacks.items():
        nodes = tuple(host.name for host in inventory.hosts if group in host.groups)
        for finding in examine(stack, StackSpec, Variable(f"group {group}"), prefix=_PREFIX):
            yield replace(finding, nodes=nodes)
    for host in inventory.hosts:
        if host.stack is not None:
            yield from examine(host.stack, StackSpec, Variable(f"host {host.name}"), prefix=_PREFIX)


def _merge_nodes(declaration: Declaration, inventory: Inventory) -> Iterator[FleetNode]:
    for host, levels in _levels(declaration.document, inventory):
        yield merge_node(host, levels)


def _levels(document: Document, inventory: Inventory) -> Iterator[tuple[Host, list[Contribution]]]:
    """Yield each host with what file, groups and host say of it, weakest first."""
    file = _said_in_file(document)
    groups = {
        name: said(Level.GROUP, stack, Variable(f"group {name}"), ()) for name, stack in inventory.group_stacks.items()
    }
    for host in inventory.hosts:
        own = said(Level.HOST, host.stack, Variable(f"host {host.name}"), ())
        yield host, [file, *(groups[name] for name in host.groups if name in groups), own]


def _said_in_file(document: Document) -> Contribution:
    content = document.content
    spec = content.get("spec") if isinstance(content, dict) else None
    return said(Level.FILE, spec, document, SPEC)


def _judge_known(document: Document, inventory: Inventory, broken: Sequence[Finding]) -> list[Finding]:
    """Return the rules that nodes do not keep, as far as levels with these errors say what is declared for them."""
    content = document.content
    strays = content.keys() - KEYS if isinstance(content, dict) else set()
    nodes = []
    for host, levels in _levels(document, inventory):
        owners = {document.name, f"host {host.name}", *(f"group {name}" for name in host.groups)}
        keys = [_within(each.key) for each in broken if each.place.source in owners]
        wrong = {key for key in keys if key is not None}
        if isinstance(content, dict) and (node := merge_known(host, levels, wrong, strays)) is not None:
            nodes.append(node)
    beside = Beside(Path(document.name).parent)
    late = [[*as_far_as_known(partial(beside.judge, node.stack))] for node in nodes]
    remarks = _judge_nodes(nodes, document, late, is_whole=False)
    return [*remarks.findings(len(inventory.hosts)), *beside.findings]


def _within(key: str) -> str | None:
    """Return a key of a level as one of the spec, which itself is "": None where it is outside."""
    for around in (dotted(SPEC), dotted(_PREFIX)):
        if key == around or key.startswith((f"{around}.", f"{around}[")):
            return key.removeprefix(around).removeprefix(".")
    return None


@dataclass
class _Remarks:
    """Findings about effective declarations; one that several nodes share is told once."""

    nodes: dict[Finding, list[str]] = field(default_factory=dict)

    def add(self, finding: Finding, node: str) -> None:
        self.nodes.setdefault(finding, []).append(node)

    def findings(self, fleet: int) -> Iterator[Finding]:
        for finding, names in self.nodes.items():
            yield finding if len(names) == fleet else replace(finding, nodes=tuple(names))


def _judge_nodes(
    nodes: Sequence[FleetNode], document: Document, late: Sequence[Sequence[Remark]], *, is_whole: bool
) -> _Remarks:
    """Return what is wrong with the nodes' declarations; `late` is what their files have shown."""
    remarks = _Remarks()
    names = [node.name for node in nodes]
    groups = members_by_group(nodes)
    offers = [*judge_offers(nodes[0].stack.tenancy, [node.stack for node in nodes])] if is_whole else []
    for node, of_files in zip(nodes, late, strict=True):
        others = (
            (
                *_judge_builder(node.stack, names),
                *judge_selected(node.stack, names, groups),
                *judge_domain(node, groups, len(nodes)),
            )
            if is_whole
            else ()
        )
        shared = as_far_as_known(partial(judge_shared, node, nodes[0]))
        for each in (*judge(node.stack), *of_files, *others, *offers, *shared):
            place, key = _locate(node, document, each.path)
            remarks.add(Finding(each.severity, place, key, each.message, each.hint), node.name)
    return remarks


def _judge_builder(stack: StackSpec, names: Sequence[str]) -> Iterator[Remark]:
    builder = stack.driver.builder
    if stack.driver.enabled and builder is not None and builder not in names:
        near = nearest(builder, names)
        hint = f"did you mean {near}?" if near else "name a host of the same distribution, kernel and architecture"
        yield Remark(Severity.ERROR, ("driver", "builder"), f"no host of the inventory is named '{builder}'", hint)


def _locate(node: FleetNode, document: Document, path: KeyPath) -> tuple[Place, str]:
    """Return where the key was written that decides for this node, and its name there."""
    origin = _origin(node, path)
    if origin is None or origin.level in {Level.DEFAULT, Level.FILE}:
        return document.value_place(SPEC + path), dotted(SPEC + path)
    return origin.where, dotted(_PREFIX + path)


def _origin(node: FleetNode, path: KeyPath) -> Origin | None:
    """Return who set a key, or the list around it, or else one of the keys below it."""
    for end in range(len(path), 0, -1):
        if dotted(path[:end]) in node.origins:
            return node.origins[dotted(path[:end])]
    below = (dotted(path) + ".", dotted(path) + "[")
    return next((origin for key, origin in node.origins.items() if key.startswith(below)), None)
