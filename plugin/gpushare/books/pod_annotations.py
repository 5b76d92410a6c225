"""The annotations of a pod: those of gpushare, which its users' tools read. Pure.

Source: `pkg/utils/const.go` of gpushare-scheduler-extender, `cmd/inspect` of gpushare-device-plugin. They are written
for others; what is placed by them is what this extender itself assumed when it bound a pod.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from plugin.gpushare.books.model import Card, Holding, Pod

INDEX = "ALIYUN_COM_GPU_MEM_IDX"
OF_CARD = "ALIYUN_COM_GPU_MEM_DEV"  # all units of the card
OF_POD = "ALIYUN_COM_GPU_MEM_POD"
ASSIGNED = "ALIYUN_COM_GPU_MEM_ASSIGNED"
ASSUME_TIME = "ALIYUN_COM_GPU_MEM_ASSUME_TIME"  # nanoseconds since the epoch
ASSIGN_TIME = "ALIYUN_COM_GPU_MEM_ASSIGN_TIME"
ALLOCATION = "scheduler.framework.gpushare.allocation"  # container → card → units, for pods on several cards
ROOM_SINCE = "grapnel.dev/has-room-since"  # nanoseconds since the epoch; gpushare has no such key
_MAX_DIGITS = 4  # 10,000 cards
OURS = (INDEX, OF_CARD, OF_POD, ASSIGNED, ASSUME_TIME, ASSIGN_TIME, ALLOCATION)


def assumed(pod: Pod, card: Card, now_ns: int) -> dict[str, str]:
    """Return what a pod is bound with: the card that is kept for it, which its kubelet has not given it yet."""
    return {
        INDEX: str(card.number),
        OF_CARD: str(card.units),
        OF_POD: str(pod.demand.units),
        ASSIGNED: "false",
        ASSUME_TIME: str(now_ns),
    }


def assumed_index(pod: Pod) -> int | None:
    """Return the index of the card that a pod's annotations name, None where they name none."""
    text = pod.annotations.get(INDEX, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MAX_DIGITS else None


def correction(pod: Pod, holdings: tuple[Holding, ...], cards: Mapping[str, Card], at_ns: int) -> dict[str, str | None]:
    """Return what has to change so that the annotations say what the pod holds; None removes one."""
    held = sorted({cards[each.uuid] for each in holdings}, key=lambda card: card.number)
    wanted: dict[str, str | None] = {OF_POD: str(pod.demand.units), ASSIGNED: "true"}
    if len(held) == 1:
        wanted |= {INDEX: str(held[0].number), OF_CARD: str(held[0].units), ALLOCATION: None}
    else:
        wanted |= {INDEX: None, OF_CARD: None, ALLOCATION: _allocation(pod, holdings, cards)}
    changes = {key: value for key, value in wanted.items() if pod.annotations.get(key) != value}
    if ASSIGNED in changes:
        changes[ASSIGN_TIME] = str(at_ns)
    return changes


def _allocation(pod: Pod, holdings: tuple[Holding, ...], cards: Mapping[str, Card]) -> str:
    found: dict[str, dict[str, int]] = {}
    for each in holdings:
        container = str(pod.names.index(each.container)) if each.container in pod.names else each.container
        of_container, index = found.setdefault(container, {}), str(cards[each.uuid].number)
        of_container[index] = of_container.get(index, 0) + each.units
    return json.dumps(found, sort_keys=True, separators=(",", ":"))
