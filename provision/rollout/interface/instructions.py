"""Defines what whoever has an engine run may say to it meanwhile, beside ending it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Instructions:
    """What an engine is told, by any thread; mappings are replaced as a whole, and never changed.

    ``hand_over``: another engine takes over. Nothing further begins; the steps that run come to their end, and nodes
    are left where their records say, for ``reason``. ``called_off`` are nodes that are not to be changed any more, each
    with why: none of them begins, and those in flight are put back into service while their driver is not touched.

    ``is_outdated``: something else is declared by now, so that nothing which follows from having what was declared is
    written any more.

    What the engine answers: ``heeded`` are the ``called_off`` by which it has decided, before it said how it stands the
    last time. ``running`` are nodes at which a step runs that keeps it from handing over.
    """

    hand_over: threading.Event = field(default_factory=threading.Event)
    reason: str = ""
    called_off: Mapping[str, str] = field(default_factory=dict)
    is_outdated: bool = False
    heeded: Mapping[str, str] | None = None
    running: frozenset[str] = frozenset()
