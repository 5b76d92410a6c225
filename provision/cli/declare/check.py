"""`grapnel check`: reports everything that is wrong with a declaration and the levels of the inventory.

Changes nothing and asks no machine. Without an inventory the file is checked alone, without starting Ansible.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.base.printable import printable_json
from provision.cli.declare.explain import describe_fleet, describe_node, render_fleet, render_node
from provision.cli.session.fleet import inventories_of
from provision.cli.terminal import print_findings, say, wants_colour
from provision.controller.stacks.file import judge_stack, read_stack_file
from provision.declaration.fleet.load import load, without_inventory
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.load import load_alone
from provision.declaration.spec.text.excerpt import few

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    from provision.declaration.fleet.model import Fleet, FleetNode
    from provision.declaration.spec.model import Driver, StackSpec
    from provision.declaration.spec.text.document import Document
    from provision.declaration.spec.text.findings import Finding

SCHEMA = "grapnel.dev/check/v1alpha1"


def run(args: argparse.Namespace) -> int:
    """Check, and print what was found."""
    if not args.json:
        return _run(args)
    try:
        return _run(args)
    except DeclarationError as error:
        _print_json(ok=False, error=error.message, hint=error.hint, findings=_describe(error.findings))
        return error.exit_code
    except GrapnelError as error:
        _print_json(ok=False, error=error.message, hint=error.hint, findings=[])
        return error.exit_code


def _run(args: argparse.Namespace) -> int:
    if args.limit and Path(args.limit).is_file():
        raise UsageError(f"{args.limit} is a file, and no NODE", hint=f"`grapnel check -f {args.limit}`")
    if (document := read_stack_file(args.file)) is not None:
        return _check_stack(args, document)
    inventories = inventories_of(args)
    if inventories:
        return _check_fleet(args, inventories)
    if args.limit:
        raise UsageError(f"a NODE needs an inventory, and {args.limit} is one", hint="name one with `--inventory`")
    return _check_file(args)


def _check_stack(args: argparse.Namespace, document: Document) -> int:
    """Check a GpuStack of a cluster, by the rules that its API server and its controller have."""
    if args.inventory or args.limit or args.explain:
        raise UsageError(
            "a GpuStack of a cluster has no machines of an inventory",
            hint=f"leave out --inventory, NODE and --explain; `grapnel plan -f {args.file}` shows its Nodes",
        )
    stack, warnings = judge_stack(document)
    if args.json:
        _print_json(ok=True, file=str(args.file), nodes=None, findings=_describe(warnings))
        return ExitCode.DONE
    print_findings(warnings)
    say(f"{args.file}: ok{_count(warnings)}")
    say(f"  {summarise(stack.spec)}")
    print("  a GpuStack of a cluster: `grapnel plan -f` of it shows what its controller would do")
    return ExitCode.DONE


def _check_file(args: argparse.Namespace) -> int:
    declaration, warnings = load_alone(args.file)
    explained = [without_inventory(declaration)] if args.explain else []
    if args.json:
        _print_json(ok=True, file=str(args.file), nodes=None, findings=_describe(warnings), **_explained(explained))
        return ExitCode.DONE
    print_findings(warnings)
    say(f"{args.file}: ok{_count(warnings)}")
    say(f"  {summarise(declaration.stack.spec)}")
    print("  only the file was checked: there is no inventory here, and no --inventory")
    _print_explained(explained)
    return ExitCode.DONE


def _check_fleet(args: argparse.Namespace, inventories: Sequence[str]) -> int:
    fleet = load(args.file, inventories, limit=args.limit, directory=Path.cwd(), environ=os.environ)
    if args.explain and args.limit and len(fleet.nodes) == 1:
        return _explain(args, fleet.nodes[0])
    explained = fleet.nodes if args.explain else ()
    if args.json:
        names, findings = [node.name for node in fleet.nodes], _describe(fleet.warnings)
        _print_json(ok=True, file=str(args.file), nodes=names, findings=findings, **_explained(explained))
        return ExitCode.DONE
    print_findings(fleet.warnings)
    say(f"{args.file}: ok for {_nodes(len(fleet.nodes))}{_count(fleet.warnings)}")
    for line in _group(fleet):
        say(f"  {line}")
    _print_explained(explained)
    return ExitCode.DONE


def _explained(nodes: Sequence[FleetNode]) -> dict[str, object]:
    """Return what is added to the JSON."""
    return {"explained": describe_fleet(nodes)} if nodes else {}


def _print_explained(nodes: Sequence[FleetNode]) -> None:
    if nodes:
        print(f"\n{render_fleet(nodes, colour=wants_colour(sys.stdout))}")


def _explain(args: argparse.Namespace, node: FleetNode) -> int:
    if args.json:
        print(printable_json(describe_node(node)))
    else:
        print(render_node(node, colour=wants_colour(sys.stdout)))
    return ExitCode.DONE


def summarise(spec: StackSpec) -> str:
    """Return a declaration in one line."""
    runtime = spec.runtime
    handlers = ", ".join(runtime.handlers)
    return "; ".join(
        (
            _summarise_driver(spec.driver),
            f"{runtime.engine.value} with handler {handlers}, entitlement {runtime.entitlement.value}",
            f"plugin offers {spec.plugin.resource}" if spec.plugin.enabled else "no plugin",
        )
    )


def _summarise_driver(driver: Driver) -> str:
    if not driver.enabled:
        return "driver not managed"
    wanted = driver.version or (f"branch {driver.branch}" if driver.branch else "of any version")
    source = "" if driver.source.value == "distribution" else f" from {driver.source.value}"
    return f"driver {wanted}{source}"


def _group(fleet: Fleet) -> Iterator[str]:
    """Yield one line for all nodes with the same summary."""
    alike: dict[str, list[str]] = {}
    for node in fleet.nodes:
        alike.setdefault(summarise(node.stack), []).append(node.name)
    for summary, names in alike.items():
        yield f"{few(names)}: {summary}"


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def _count(warnings: Sequence[Finding]) -> str:
    return f", {len(warnings)} warning{'s' * (len(warnings) > 1)}" if warnings else ""


def _describe(findings: Iterable[Finding]) -> list[dict[str, object]]:
    return [
        {
            "severity": each.severity.value,
            "source": each.place.source,
            "line": each.place.line or None,
            "column": each.place.column or None,
            "key": each.key,
            "message": each.message,
            "hint": each.hint,
            "nodes": list(each.nodes),
        }
        for each in findings
    ]


def _print_json(**fields: object) -> None:
    print(printable_json({"schema": SCHEMA, **fields}))
