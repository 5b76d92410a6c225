"""Renders what `grapnel init` found on machines: groups, what could not be said, what each part would change."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.base.printable import printable_json
from provision.declaration.fleet.series import in_series
from provision.planning.products.recognise import problem_of
from provision.report.console import Text
from provision.report.terminal import count, hanging, names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import RenderableType

    from provision.apply.model import Failure
    from provision.planning.draft.fleet import FleetDraft
    from provision.planning.draft.model import Offer

SCHEMA: Final = "grapnel.dev/draft/v1alpha1"
_INDENT: Final = 2


def render_draft(
    draft: FleetDraft, failures: Mapping[str, Failure], written: Sequence[str], inventories: Sequence[str]
) -> Iterator[RenderableType]:
    """Yield what was written, what could not be said, what would change, and what to do next."""
    yield Text(f"wrote {' and '.join(written)}", "bold")
    for group in draft.groups:
        yield hanging(_INDENT, Text.assemble((f"{group.name}: ", "bold"), (names(in_series(group.nodes)), "cyan")))
    for message, hint, nodes in _notes(draft):
        yield ""
        yield Text.assemble(("not said: ", "bold yellow"), message, (f"  {count(len(nodes), 'node')}", "dim"))
        yield hanging(_INDENT, Text(names(in_series(nodes)), "cyan"))
        yield hanging(_INDENT, Text.assemble(("remedy: ", "green"), hint))
    for (key, told), nodes in _offers(draft).items():
        yield ""
        yield Text.assemble((f"{key}: ", "bold"), told, (f"  {count(len(nodes), 'node')}", "dim"))
    yield from _left_out(failures)
    yield ""
    yield Text(_outcome(draft), "bold")
    more = "".join(f" -i {each}" for each in (*inventories, *written[1:]))
    yield Text(f"next: grapnel plan -f {written[0]}{more}")


def render_plain(failures: Mapping[str, Failure], file: str) -> Iterator[RenderableType]:
    """Yield the same where no node has answered: the first keys were written, with nothing of them."""
    yield Text(f"wrote {file}: the keys that matter first, with nothing of the machines", "bold")
    yield from _left_out(failures)
    yield ""
    yield Text(f"next: make them answer (`ansible all -m ping`) and run it again with --force, or fill {file} in")


def _left_out(failures: Mapping[str, Failure]) -> Iterator[RenderableType]:
    for node, failure in failures.items():
        yield ""
        yield hanging(Text.assemble((f"{node}: ", "bold red")), Text(f"left out: {failure.message}"))


def _notes(draft: FleetDraft) -> Iterator[tuple[str, str, list[str]]]:
    """Yield what no key says and which other products are there, each once with its nodes."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node, of_node in draft.nodes.items():
        for each in of_node.unsaid:
            found[each.message, each.hint].append(node)
        for product in draft.products[node]:
            problem = problem_of(product)
            found[problem.message, problem.hint].append(node)
    for (message, hint), nodes in found.items():
        yield message, hint, nodes


def _offers(draft: FleetDraft) -> dict[tuple[str, str], list[str]]:
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for node, of_node in draft.nodes.items():
        for offer in of_node.offers:
            found[offer.key, _told(offer)].append(node)
    return found


def _told(offer: Offer) -> str:
    if offer.problems:
        return f"true is refused: {'; '.join(problem.message for problem in offer.problems)}"
    targets = names([f"{item.action.value} {item.target}" for item in offer.items])
    return f"true would change {count(len(offer.items), 'thing')}: {targets}"


def _outcome(draft: FleetDraft) -> str:
    changing = [node for node, one in draft.nodes.items() if not one.plan.is_empty]
    if not changing:
        return f"as it is written, apply changes nothing on {count(len(draft.nodes), 'node')}"
    items = sum(len(draft.nodes[node].plan.items) for node in changing)
    return f"as it is written, apply would change {count(items, 'thing')} on {names(in_series(changing))}"


def draft_document(draft: FleetDraft, failures: Mapping[str, Failure], written: Sequence[str]) -> str:
    """Return the same as JSON, node by node: what docs/command-line.md says of it."""
    document: dict[str, Any] = {
        "schema": SCHEMA,
        "written": list(written),
        "groups": [
            {"name": group.name, "nodes": list(group.nodes), "said": [_said(each) for each in group.said]}
            for group in draft.groups
        ],
        "nodes": [
            {
                "node": node,
                "unsaid": [msgspec.to_builtins(each) for each in one.unsaid],
                "offers": [msgspec.to_builtins(each) for each in one.offers],
                "items": [msgspec.to_builtins(each) for each in one.plan.items],
                "problems": [msgspec.to_builtins(each) for each in one.plan.problems],
                "products": [
                    {"code": each.product.code, "page": each.product.page, "found": list(each.found)}
                    for each in draft.products[node]
                ],
            }
            for node, one in draft.nodes.items()
        ],
        "failures": [
            {"node": node, "status": one.status.value, "message": one.message} for node, one in failures.items()
        ],
    }
    return printable_json(document)


def _said(said: Any) -> dict[str, object]:
    return {"key": ".".join(said.path), "value": said.value, "reason": said.reason}
