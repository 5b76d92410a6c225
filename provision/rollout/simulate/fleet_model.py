"""Defines the file that describes a fleet to simulate: keys, defaults and limits. The contract is simulation-fleet."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, field

from provision.declaration.spec.model import GpuInterface, Rollout
from provision.declaration.spec.model.section import Section, doc, text
from provision.declaration.spec.model.texts import DnsLabel, DriverVersion, GroupName, HostName, LabelKey, LabelValue

API_VERSION: Final = "grapnel.dev/v1alpha1"
KIND: Final = "SimulatedFleet"

Share = Annotated[
    str, text(r"(100|[0-9]{1,2}(\.[0-9]{1,3})?)%", "a share: 0% to 100%, with up to three decimals", "0.5%")
]
Count = Annotated[int, Meta(ge=1, le=20_000)]
Seconds = Annotated[int, Meta(ge=0, le=604_800)]
Minutes = Annotated[int, Meta(ge=0, le=10_080)]


class Nodes(Section, frozen=True, kw_only=True):
    """Some equal nodes."""

    name: Annotated[HostName, doc("Their name; with a count, each has its number behind it.")]
    count: Annotated[Count | None, doc("How many there are; null: one, of exactly that name.")] = None
    driver: Annotated[DriverVersion | None, doc("What runs on them; null: `from`.")] = None
    groups: Annotated[tuple[GroupName, ...], doc("Groups of the inventory that they are in.", uniqueItems=True)] = ()
    labels: Annotated[dict[LabelKey, LabelValue], doc("Labels of their Nodes, such as those of zones.")] = field(
        default_factory=dict
    )
    pods: Annotated[dict[DnsLabel, Count], doc("How many pods of each of `pods` run on each node.")] = field(
        default_factory=dict
    )
    cordoned: Annotated[bool, doc("Somebody has cordoned them.")] = False
    ready: Annotated[bool, doc("Their kubelets report.")] = True
    skipped: Annotated[bool, doc("Somebody wants them left alone, as `grapnel skip` says it.")] = False


class Pods(Section, frozen=True, kw_only=True):
    """Pods that have a GPU."""

    grace_seconds: Annotated[Seconds | None, doc("How long they take to end; null: drawn from `durations.drain`.")] = (
        None
    )
    budget: Annotated[DnsLabel | None, doc("The disruption budget of `budgets` that they count for; null: none.")] = (
        None
    )
    daemon_set: Annotated[bool, doc("They belong to a DaemonSet: nobody evicts them.")] = False


class Disruptions(Section, frozen=True, kw_only=True):
    """A disruption budget."""

    allowed: Annotated[Count, doc("How many of its pods may be gone at once.")] = 1
    restart_seconds: Annotated[Seconds, doc("How long after its end another pod is healthy elsewhere.")] = 60


class Duration(Section, frozen=True, kw_only=True):
    """How long something takes: log-normal, or one of what was measured."""

    median: Annotated[Seconds, doc("Half take no longer, in seconds.")] = 0
    p95: Annotated[Seconds, doc("95 % take no longer, in seconds; 0: all take the median.")] = 0
    measured: Annotated[
        tuple[Seconds, ...], doc("What was measured, such as `took` of records; empty: median and p95.")
    ] = ()


class Durations(Section, frozen=True, kw_only=True):
    """How long phases take; null: what is usual."""

    drain: Annotated[Duration | None, doc("Until a pod that was evicted has ended.")] = None
    release: Annotated[Duration | None, doc("Until the node daemon has closed the driver.")] = None
    swap: Annotated[Duration | None, doc("Until packages and kernel module are exchanged.")] = None
    verify: Annotated[Duration | None, doc("Until the driver is verified.")] = None
    resume: Annotated[Duration | None, doc("Until the node daemon offers the GPUs again.")] = None
    rollback: Annotated[Duration | None, doc("Until the former driver is back.")] = None


class Outages(Section, frozen=True, kw_only=True):
    """Times in which the API server does not answer."""

    every_minutes: Annotated[Minutes, doc("How long from the beginning of one to the next; 0: there are none.")] = 0
    minutes: Annotated[Minutes, doc("How long each lasts.")] = 0


class FaultRates(Section, frozen=True, kw_only=True):
    """What goes wrong, and how often."""

    swap: Annotated[Share, doc("Nodes whose driver cannot be exchanged.")] = "0%"
    verify: Annotated[Share, doc("Nodes whose new driver is not as expected.")] = "0%"
    nodes_lost: Annotated[Share, doc("Nodes that go down in their swap and stay down.")] = "0%"
    stuck_pods: Annotated[Share, doc("Pods that never end.")] = "0%"
    hardware_per_day: Annotated[Share, doc("Nodes whose hardware fails in a day, whatever is done.")] = "0%"
    api_away: Annotated[Outages, doc("Outages of the API server.")] = Outages()


class FleetSpec(Section, frozen=True, kw_only=True, rename={"from_": "from"}):
    """The fleet, what is declared about it, and what happens to it."""

    nodes: Annotated[tuple[Nodes, ...], doc("The nodes, in the order of the inventory.", minItems=1)]
    from_: Annotated[DriverVersion, doc("The driver that runs on the nodes.")] = "535.261.03"
    to: Annotated[DriverVersion, doc("The driver that is declared.")] = "550.163.01"
    interface: Annotated[
        GpuInterface | None,
        doc(
            "The interface of Kubernetes (`plugin.interface`) that all nodes change over to: from devicePlugin, and to "
            "that from dra; null: they get the driver `to`."
        ),
    ] = None
    rollout: Annotated[Rollout, doc("How the change moves through the fleet, as in the declaration.")] = Rollout()
    pods: Annotated[dict[DnsLabel, Pods], doc("Pods that have a GPU, by name.")] = field(default_factory=dict)
    budgets: Annotated[dict[DnsLabel, Disruptions], doc("Disruption budgets, by name.")] = field(default_factory=dict)
    durations: Annotated[Durations, doc("How long things take.")] = Durations()
    faults: Annotated[FaultRates, doc("What goes wrong.")] = FaultRates()


class SimulatedFleet(Section, frozen=True, kw_only=True, rename={"api_version": "apiVersion"}):
    """A fleet to simulate."""

    api_version: Annotated[Literal["grapnel.dev/v1alpha1"], doc("The version of this format.")]
    kind: Annotated[Literal["SimulatedFleet"], doc("What this file describes.")]
    spec: Annotated[FleetSpec, doc("The fleet.")]
