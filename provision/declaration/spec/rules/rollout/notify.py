"""Checks rules across the keys of `rollout.notify`, as far as the declaration alone shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from provision.declaration.spec.rules.remark import error, warning

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Rollout
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

NOTIFY: Final[KeyPath] = ("rollout", "notify")


def judge_notify(rollout: Rollout) -> Iterator[Remark]:
    """Yield what is contradictory or in vain about receivers."""
    seen: dict[tuple[str | None, str | None], int] = {}
    for index, one in enumerate(rollout.notify):
        path = (*NOTIFY, index)
        if (one.url is None) == (one.url_file is None):
            what = "has no place to send to" if one.url is None else "has two places to send to"
            yield error(path, what, "write url, or urlFile where the URL is a secret itself")
            continue
        if not one.events:
            yield warning((*path, "events"), "the receiver is told nothing", "name events, or leave the key out")
        first = seen.setdefault((one.url, one.url_file), index)
        if first != index:
            yield error(path, f"is the same receiver as entry {first + 1}", "put the events of both into one entry")
