"""Recognises products by a node's facts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from provision.planning.engines.table import FOLDERS
from provision.planning.node_plan import Problem
from provision.planning.products.table import PRODUCTS, Product

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.planning.node_plan import Item

_OWN_FIRST_LINE: Final = "# managed by grapnel:"
_FEW: Final = 3


@dataclass(frozen=True)
class Recognised:
    """A product, and what it was recognised by: paths of the node, in order."""

    product: Product
    found: tuple[str, ...]


def recognise(facts: NodeFacts) -> tuple[Recognised, ...]:
    """Return the products of which something is on a node, in the order of the table."""
    there = frozenset(path for path in facts.product_files if not _is_ours(facts, path))
    texts = tuple(_engine_texts(facts))
    found = ((product, _found(product, there, texts)) for product in PRODUCTS)
    return tuple(Recognised(product, paths) for product, paths in found if paths)


def warnings(facts: NodeFacts, items: Iterable[Item], *, has_problems: bool) -> tuple[Problem, ...]:
    """Return what a plan says about other products: nothing where it has nothing to do beside them."""
    roles = {item.role for item in items}
    if not (roles or has_problems):
        return ()
    return tuple(
        problem_of(each) for each in recognise(facts) if has_problems or not roles.isdisjoint(each.product.roles)
    )


def problem_of(recognised: Recognised) -> Problem:
    """Return a product in the words of a plan."""
    product = recognised.product
    return Problem(
        code=f"product-{product.code}",
        message=f"{product.name} is on the node ({shown_paths(recognised)}): {product.meaning}",
        hint=f"{product.remedy}: {product.page}",
    )


def shown_paths(recognised: Recognised) -> str:
    """Return what a product was recognised by, in a few words."""
    more = len(recognised.found) - _FEW
    return ", ".join(recognised.found[:_FEW]) + (f" and {more} more" if more > 0 else "")


def _found(product: Product, there: frozenset[str], texts: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the paths that a product is recognised by, and those that are its as well; none without a mark."""
    marks = sorted(there.intersection(product.marks))
    marks += sorted(path for path, text in texts if any(each in text for each in product.mentions))
    also = sorted(there.intersection(product.also)) if marks else []
    return tuple(dict.fromkeys([*marks, *also]))


def _engine_texts(facts: NodeFacts) -> Iterable[tuple[str, str]]:
    """Yield the engines' files with their texts, apart from our own."""
    for path, state in facts.files.items():
        text = "" if state is None else state.content or ""
        if path.startswith(FOLDERS) and not text.startswith(_OWN_FIRST_LINE):
            yield path, text


def _is_ours(facts: NodeFacts, path: str) -> bool:
    """Tell whether a path that another product has as well is a file of grapnel's now."""
    return (facts.content(path) or "").startswith(_OWN_FIRST_LINE)
