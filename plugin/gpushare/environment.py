"""The environment of a container with memory units, by gpushare's names. Pure.

Source: `pkg/gpu/nvidia/allocate.go` and `const.go` of gpushare-device-plugin. `ALIYUN_COM_GPU_MEM_POD` is not set: the
kubelet does not say whose container it asks for. The annotation of that name says it, and a pod can have it by the
downward API. NVIDIA_VISIBLE_DEVICES is `allocation`'s: the UUID, where gpushare writes an index.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from plugin.gpushare.books.model import Card

INDEX = "ALIYUN_COM_GPU_MEM_IDX"
OF_CARD = "ALIYUN_COM_GPU_MEM_DEV"
OF_CONTAINER = "ALIYUN_COM_GPU_MEM_CONTAINER"


def environment(card: Card, units: int) -> dict[str, str]:
    """Return the variables of a container that holds so many units of a card."""
    return {INDEX: str(card.number), OF_CARD: str(card.units), OF_CONTAINER: str(units)}
