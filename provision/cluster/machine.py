"""Describes a machine of the inventory by what a cluster recognises it by."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What is known of a machine of the inventory besides its name.

    ``addresses`` are where the operator connects to. ``hostname`` and ``machine_id`` come from the machine itself, and
    are empty until its facts are gathered.
    """

    addresses: frozenset[str] = frozenset()
    hostname: str = ""
    machine_id: str = ""
