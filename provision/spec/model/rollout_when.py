"""Defines what says when nodes may be changed, and in which order: parts of the section `rollout`."""

from __future__ import annotations

from enum import Enum
from typing import Final


class Tool(Enum):
    """Others that take nodes out of service."""

    KURED = "kured"
    MACHINE_CONFIG_OPERATOR = "machineConfigOperator"
    NVSENTINEL = "nvsentinel"
    CLUSTER_API = "clusterApi"
    CLUSTER_AUTOSCALER = "clusterAutoscaler"
    KARPENTER = "karpenter"
    MEDIK8S = "medik8s"
    NODE_CONDITIONS = "nodeConditions"


RESPECTED: Final = tuple(Tool)


class Order(Enum):
    """In which order nodes begin that have the same wave and the same priority."""

    INVENTORY = "inventory"
    SPREAD = "spread"
    EMPTY_FIRST = "emptyFirst"
