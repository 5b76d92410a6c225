"""Defines which nodes are changed together: a part of the section `rollout`."""

from __future__ import annotations

from typing import Annotated

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import GroupName, LabelKey


class Domains(Section, frozen=True, kw_only=True):
    """Nodes that must never serve with different drivers, such as those of an NVLink clique or a rack."""

    node_label: Annotated[
        LabelKey | None,
        doc("Label of Nodes whose value is the domain, such as nvidia.com/gpu.clique; null: groups say it."),
    ] = None
    groups: Annotated[
        tuple[GroupName, ...],
        doc("Groups of the inventory, each a domain; empty: nodeLabel says it.", uniqueItems=True),
    ] = ()
