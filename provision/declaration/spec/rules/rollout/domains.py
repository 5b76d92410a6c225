"""Checks rules about domains, as far as the declaration alone shows them.

Whether groups exist, and how large they are, is judged where the inventory is known, in `provision.declaration.fleet`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.rules.remark import error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Rollout
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

DOMAINS: Final[KeyPath] = ("rollout", "domains")


def judge_domains(rollout: Rollout) -> Iterator[Remark]:
    """Yield every rule about domains that is not kept."""
    domains = rollout.domains
    if domains is None:
        return
    if domains.node_label is not None and domains.groups:
        hint = "leave one of them out: a node's domain is the value of its label, or the group that it is in"
        yield error(DOMAINS, "nodeLabel and groups cannot both say which domain a node is in", hint)
    elif domains.node_label is None and not domains.groups:
        yield error(
            DOMAINS, "nothing says which domain a node is in", "write nodeLabel or groups, or leave domains out"
        )
