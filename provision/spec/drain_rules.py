"""Checks rules across the keys of `rollout.waitFor` and `rollout.drain`, as far as the declaration alone shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.spec.excerpt import few
from provision.spec.model import AtTimeout, WaitFor
from provision.spec.remark import warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.spec.findings import KeyPath
    from provision.spec.model import Rollout
    from provision.spec.remark import Remark

WAIT: Final[KeyPath] = ("rollout", "waitFor")
DRAIN: Final[KeyPath] = ("rollout", "drain")


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
