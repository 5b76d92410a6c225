"""Defines a product that is recognised by what it leaves on a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from provision.planning.node_plan import Role


@dataclass(frozen=True)
class Product:
    """One product; ``code`` is its name in messages for programs, and the name of its page.

    Any path of ``marks`` that is there shows that it was installed, and so does a text of ``mentions`` in a file of a
    container engine. ``also`` are paths of it that say nothing by themselves, as others have them too. A warning is
    given where a plan has something to do for one of ``roles``.
    """

    code: str
    name: str
    marks: tuple[str, ...]
    meaning: str
    remedy: str
    roles: frozenset[Role]
    also: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()

    @property
    def page(self) -> str:
        """The page for people who come from it."""
        return f"docs/migrate/{self.code}.md"


@dataclass(frozen=True)
class Recognised:
    """A product, and what it was recognised by: paths of the node, in order."""

    product: Product
    found: tuple[str, ...]
