"""Defines what says when nodes may be changed, in which order, and which together: parts of the section `rollout`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

from msgspec import Meta

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import (
    DayOrMinute,
    GroupName,
    LabelKey,
    Percent,
    ReasonText,
    TimeOfDay,
    TimeZone,
)

Count = Annotated[int, Meta(ge=1, le=100_000)]


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
    MAINTENANCE_OPERATOR = "maintenanceOperator"


# The maintenance operator is known by its own objects alone, which takes a permission.
RESPECTED: Final = tuple(tool for tool in Tool if tool is not Tool.MAINTENANCE_OPERATOR)


class MaintenanceRequests(Section, frozen=True, kw_only=True):
    """What other tools are asked for while a node is out of service."""

    node_maintenances: Annotated[
        bool,
        doc(
            "Whether a NodeMaintenance is requested of NVIDIA's maintenance operator before a node is cordoned, and "
            "waited for; it is deleted at the end."
        ),
    ] = False
    timeout_minutes: Annotated[
        Annotated[int, Meta(ge=1, le=10_080)],
        doc("How long a NodeMaintenance may take to be ready before the node is left as it is."),
    ] = 60
    nvsentinel: Annotated[
        bool,
        doc(
            "Whether a node is labelled nvsentinel.dgxc.nvidia.com/managed=false, and as older releases have it, while "
            "it is out of service, so that NVSentinel leaves it alone."
        ),
    ] = False


class Order(Enum):
    """In which order nodes begin that have the same wave and the same priority."""

    INVENTORY = "inventory"
    SPREAD = "spread"
    EMPTY_FIRST = "emptyFirst"


class Day(Enum):
    """Days of the week."""

    MON = "mon"
    TUE = "tue"
    WED = "wed"
    THU = "thu"
    FRI = "fri"
    SAT = "sat"
    SUN = "sun"


class Window(Section, frozen=True, kw_only=True):
    """A time of the week in which nodes may be taken out of service."""

    days: Annotated[tuple[Day, ...], doc("Days on which it begins; empty: every day.", uniqueItems=True)] = ()
    start: Annotated[TimeOfDay, doc("When it begins.")]
    end: Annotated[TimeOfDay, doc("When it ends; a time that is not after start is on the next day.")]
    time_zone: Annotated[TimeZone, doc("Time zone of start and end, with its summer time.")] = "UTC"


class Blackout(Section, frozen=True, kw_only=True):
    """Days on which no node is taken out of service, whatever the windows say."""

    first: Annotated[DayOrMinute, doc("When it begins; a day: with that day.")]
    last: Annotated[DayOrMinute, doc("When it ends; a day: with the end of that day.")]
    time_zone: Annotated[TimeZone, doc("Time zone of first and last.")] = "UTC"
    reason: Annotated[ReasonText | None, doc("Why, for messages.")] = None


class Zones(Section, frozen=True, kw_only=True):
    """Parts of the fleet that should not be out of service together."""

    node_label: Annotated[
        LabelKey | None,
        doc("Label of Nodes whose value is the zone, such as topology.kubernetes.io/zone; null: groups say it."),
    ] = None
    groups: Annotated[
        tuple[GroupName, ...], doc("Groups of the inventory, each a zone; empty: nodeLabel says it.", uniqueItems=True)
    ] = ()
    max_unavailable: Annotated[
        Count | Percent | None,
        doc(
            "Most nodes of a zone that may be out of service at once: a number, or a percentage of the zone that is "
            "rounded up; null: as many as of the fleet."
        ),
    ] = None
    one_at_a_time: Annotated[
        bool, doc("Whether nodes of one zone alone are changed, and those of the next when it is done.")
    ] = False


class Domains(Section, frozen=True, kw_only=True):
    """Nodes that must never serve with different drivers, such as those of an NVLink clique or a rack."""

    node_label: Annotated[
        LabelKey | None,
        doc("Label of Nodes whose value is the domain, such as nvidia.com/gpu.clique; null: groups say it."),
    ] = None
    groups: Annotated[
        tuple[GroupName, ...],
        doc("Groups of the inventory, each a domain; empty: nodeLabel says it.", uniqueItems=True),
    ] = ()
