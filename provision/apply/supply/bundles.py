"""Opens the bundles that nodes declare, each once in a command, whatever the number of nodes that declare it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.read import open_place

if TYPE_CHECKING:
    from pathlib import Path

    from provision.planning.supply.bundle.read import Bundle


@dataclass(frozen=True)
class Bundles:
    """The declared bundles of a command; what is wrong with one is found once, and said for each node.

    With ``signers``, a file of allowed signers, each has to be signed by one of them.
    """

    cache: Path
    signers: Path | None = None
    _known: dict[Path, Bundle | BundleError] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def open(self, place: Path) -> Bundle:
        """Return a bundle, checked; raises `BundleError`. May be called on any thread."""
        with self._turn:
            if place not in self._known:
                try:
                    self._known[place] = open_place(place, self.cache, self.signers)
                except BundleError as error:
                    self._known[place] = error
            known = self._known[place]
        if isinstance(known, BundleError):
            raise BundleError(known.message, hint=known.hint)
        return known
