"""Checks rules across the keys of `rollout.waitFor` and `rollout.drain`, as far as the declaration alone shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import AtTimeout, ReplaceFirst, WaitFor
from provision.declaration.spec.rules.remark import warning
from provision.declaration.spec.text.excerpt import few

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Drain, Rollout
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

WAIT: Final[KeyPath] = ("rollout", "waitFor")
DRAIN: Final[KeyPath] = ("rollout", "drain")
REPLACE: Final[KeyPath] = (*DRAIN, "replaceFirst")


def judge_drain(rollout: Rollout) -> Iterator[Remark]:
    """Yield what the two sections say in vain."""
    wait, drain = rollout.wait_for, rollout.drain
    is_limited = wait.timeout_minutes != WaitFor().timeout_minutes
    if is_limited and not wait.pod_selector and not wait.namespaces and not drain.spares_pods:
        message = "limits a wait for pods of which none is selected"
        yield warning((*WAIT, "timeoutMinutes"), message, "name them with podSelector or namespaces, or take it away")
    both = sorted(set(wait.namespaces) & set(drain.only_wait))
    if is_limited and both and wait.on_timeout is AtTimeout.EVICT:
        message = f"pods of {few(both)} are not evicted after timeoutMinutes: onlyWait excludes it"
        yield warning((*DRAIN, "onlyWait"), message, "name a namespace in one of the two lists")
    yield from _replace_first(wait, drain)


def _replace_first(wait: WaitFor, drain: Drain) -> Iterator[Remark]:
    """Yield why pods that are to be replaced first are not, or never leave."""
    first = drain.replace_first
    if not first.selects:
        if first.otherwise is not ReplaceFirst().otherwise:
            message = "is about pods of which none is selected"
            yield warning((*REPLACE, "otherwise"), message, "name them with podSelector or namespaces, or take it away")
        return
    never = sorted(set(first.namespaces) & set(drain.only_wait))
    if never:
        message = f"pods of {few(never)} are never evicted, so none is replaced: onlyWait excludes it"
        yield warning((*REPLACE, "namespaces"), message, "name a namespace in one of the two lists")
    is_same = wait.pod_selector == first.pod_selector and set(wait.namespaces) == set(first.namespaces)
    if is_same and not wait.timeout_minutes:
        message = "the same pods are waited for as long as it takes: none is ever replaced"
        yield warning(REPLACE, message, "give waitFor.timeoutMinutes, or select other pods")
    elif is_same and wait.on_timeout is AtTimeout.GIVE_UP:
        message = "the same pods are waited for, and their node is given up after that: none is ever replaced"
        yield warning(REPLACE, message, "declare waitFor.onTimeout: evict, or select other pods")
