"""Tells whether GPUs run a driver branch, and names the newest one that they all run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from provision.planning.driver.terms import branch_of
from provision.planning.node_plan import Problem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from provision.planning.driver.gpus import GpuSupport


def check_branch(gpus: Sequence[GpuSupport], version: str) -> Problem | None:
    """Return why the GPUs of a node do not run a version or branch, None when they do."""
    branch = branch_of(version)
    too_new = [each for each in gpus if each.newest_branch is not None and each.newest_branch < branch]
    if too_new:
        return Problem(
            code="branch-too-new",
            message=f"driver {version} does not support {_names(too_new)}: "
            f"branch {newest_branch(too_new)} is the last one that does",
            hint=_instead(gpus),
        )
    too_old = [each for each in gpus if each.oldest_branch is not None and each.oldest_branch > branch]
    if too_old:
        return Problem(
            code="branch-too-old",
            message=f"driver {version} does not support {_names(too_old)}: "
            f"branch {oldest_branch(too_old)} is the first one that does",
            hint=_instead(gpus),
        )
    return None


def newest_branch(gpus: Sequence[GpuSupport]) -> int | None:
    """Return the last branch that all of these GPUs run, None without a limit."""
    return min((each.newest_branch for each in gpus if each.newest_branch is not None), default=None)


def oldest_branch(gpus: Sequence[GpuSupport]) -> int | None:
    """Return the first branch that all of these GPUs run, None without a limit."""
    return max((each.oldest_branch for each in gpus if each.oldest_branch is not None), default=None)


def _instead(gpus: Sequence[GpuSupport]) -> str:
    first, last = oldest_branch(gpus), newest_branch(gpus)
    if first is not None and last is not None and first > last:
        return f"no branch supports all of the node's GPUs ({_names(gpus)}): take some of them out of it"
    if last is not None:
        return f"declare driver.branch: '{last}', the newest that works on this node, or a version of it"
    return f"declare driver.branch: '{first}' or a newer one"


def _names(gpus: Sequence[GpuSupport]) -> str:
    return ", ".join(sorted({each.name for each in gpus}))
