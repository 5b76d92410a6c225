"""Makes one check out of what is wrong with single GPUs. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.changes.driver_change.verification.model import Check

if TYPE_CHECKING:
    from collections.abc import Sequence

    from plugin.changes.driver_change.verification.model import Found, Wanted


def judge(
    name: str, want: Wanted, found: Found, *, problems: Sequence[tuple[str, str]], notes: Sequence[str] = ()
) -> Check:
    """Return the check of a list of (UUID, what is wrong); a GPU that was unhealthy before fails nothing."""
    failing = [f"{found.name(uuid)}: {problem}" for uuid, problem in problems if uuid not in want.excused]
    told = [
        f"was unhealthy before: {found.name(uuid)}: {problem}" for uuid, problem in problems if uuid in want.excused
    ]
    wrong = tuple(dict.fromkeys(uuid for uuid, _ in problems))
    return Check(name, (), wrong, not failing, "; ".join([*failing, *told, *notes]))
