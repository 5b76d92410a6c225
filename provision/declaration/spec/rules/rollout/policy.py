"""Checks rules across the keys of the section `rollout`, as far as the declaration alone shows them.

Whether groups and hosts of waves exist is judged where the inventory is known, in `provision.declaration.fleet`.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import Gate
from provision.declaration.spec.rules.remark import error, warning
from provision.declaration.spec.rules.rollout.domains import judge_domains
from provision.declaration.spec.rules.rollout.drain import judge_drain
from provision.declaration.spec.rules.rollout.gates import judge_gates
from provision.declaration.spec.rules.rollout.notify import judge_notify
from provision.declaration.spec.rules.rollout.when import judge_when

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.declaration.spec.model import Rollout, Wave
    from provision.declaration.spec.rules.remark import Remark
    from provision.declaration.spec.text.findings import KeyPath

WAVES: Final[KeyPath] = ("rollout", "waves")
_WHOLE: Final = 100


def judge_rollout(rollout: Rollout) -> Iterator[Remark]:
    """Yield every rule that the section does not keep, errors and warnings."""
    return chain(
        _limits(rollout),
        judge_domains(rollout),
        judge_drain(rollout),
        _chosen(rollout),
        _last(rollout),
        _overlaps(rollout),
        judge_when(rollout),
        judge_gates(rollout),
        judge_notify(rollout),
    )


def _limits(rollout: Rollout) -> Iterator[Remark]:
    if isinstance(rollout.max_unavailable, int) and rollout.max_parallel > rollout.max_unavailable:
        message = f"never more than maxUnavailable ({rollout.max_unavailable}) nodes change at once"
        yield warning(("rollout", "maxParallel"), message, "raise maxUnavailable, or lower maxParallel")


def _chosen(rollout: Rollout) -> Iterator[Remark]:
    waves = rollout.waves
    for index, wave in enumerate(waves[:-1]):
        if wave.size is None and not wave.groups and not wave.hosts:
            message = "takes all nodes, so that the waves after it have none"
            yield error((*WAVES, index), message, "give it a size, groups or hosts; only the last wave takes the rest")
    percents = [
        int(wave.size.removesuffix("%")) for wave in waves[:-1] if isinstance(wave.size, str) and not _selects(wave)
    ]
    if sum(percents) >= _WHOLE:
        message = f"the waves before the last one take {sum(percents)}% of the nodes, and leave none for it"
        yield error(WAVES, message, "lower their sizes to less than 100% together")


def _last(rollout: Rollout) -> Iterator[Remark]:
    waves = rollout.waves
    if not waves:
        return
    last, path = waves[-1], (*WAVES, len(waves) - 1)
    if last.size is not None or _selects(last):
        hint = "leave size, groups and hosts out, or add a wave after it: `- {}`"
        yield error(path, "is the last wave, and does not take all nodes that are left", hint)
    if last.soak_minutes or last.gate is not Gate.HEALTHY:
        hint = "leave soakMinutes and gate out, or add a wave after it"
        yield warning(path, "nothing waits for the last wave: its soak and its gate have no effect", hint)


def _overlaps(rollout: Rollout) -> Iterator[Remark]:
    seen: dict[tuple[str, str], int] = {}
    for index, wave in enumerate(rollout.waves):
        named = [("name", wave.name)] if wave.name else []
        hosts = [("host", host) for host in wave.hosts]
        groups = [("group", group) for group in wave.groups if wave.size is None]
        for kind, value in (*named, *hosts, *groups):
            if (kind, value) in seen:
                hint = (
                    "a node is in one wave: the first that selects it"
                    if kind != "name"
                    else "messages name waves by it"
                )
                message = f"{kind} '{value}' is in wave {seen[kind, value] + 1} already"
                yield error((*WAVES, index), message, hint)
            seen.setdefault((kind, value), index)


def _selects(wave: Wave) -> bool:
    return bool(wave.groups or wave.hosts)
