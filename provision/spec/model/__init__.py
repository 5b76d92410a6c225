"""Defines what can be declared: GpuStack, its sections, their defaults and their limits.

The one truth: the JSON schema, the file that `grapnel init` writes, the checks of the loader and their
messages are all derived from these types. Every key is described in one sentence; `extra["expected"]` says in
words what a pattern says in signs. No reading, no merging and no rule across keys here.
"""

from provision.spec.model.driver import (
    ALTERNATIVES,
    Build,
    Capability,
    Companion,
    Compile,
    Driver,
    DriverSource,
    KernelModule,
    Repository,
    Runfile,
    Signing,
)
from provision.spec.model.rollout import Gate, Rollout, Wave
from provision.spec.model.rollout_domains import Domains
from provision.spec.model.rollout_drain import (
    AtTimeout,
    DaemonSets,
    Drain,
    EvictionRequests,
    Leaving,
    Processes,
    ReplaceFirst,
    WaitFor,
)
from provision.spec.model.rollout_gates import Expect, Holds, QueryGate
from provision.spec.model.rollout_notify import USUAL, News, NodeConditions, Notify
from provision.spec.model.rollout_when import (
    RESPECTED,
    Blackout,
    Day,
    MaintenanceRequests,
    Order,
    Tool,
    Window,
    Zones,
)
from provision.spec.model.scheduler import Commands, Scheduler, SchedulerKind, Slurm
from provision.spec.model.stack import (
    API_VERSION,
    KIND,
    Engine,
    Entitlement,
    GpuStack,
    Metadata,
    Node,
    Plugin,
    Runtime,
    StackSpec,
    Taint,
    TaintEffect,
    Tenancy,
)

__all__ = [
    "ALTERNATIVES",
    "API_VERSION",
    "KIND",
    "RESPECTED",
    "USUAL",
    "AtTimeout",
    "Blackout",
    "Build",
    "Capability",
    "Commands",
    "Companion",
    "Compile",
    "DaemonSets",
    "Day",
    "Domains",
    "Drain",
    "Driver",
    "DriverSource",
    "Engine",
    "Entitlement",
    "EvictionRequests",
    "Expect",
    "Gate",
    "GpuStack",
    "Holds",
    "KernelModule",
    "Leaving",
    "MaintenanceRequests",
    "Metadata",
    "News",
    "Node",
    "NodeConditions",
    "Notify",
    "Order",
    "Plugin",
    "Processes",
    "QueryGate",
    "ReplaceFirst",
    "Repository",
    "Rollout",
    "Runfile",
    "Runtime",
    "Scheduler",
    "SchedulerKind",
    "Signing",
    "Slurm",
    "StackSpec",
    "Taint",
    "TaintEffect",
    "Tenancy",
    "Tool",
    "WaitFor",
    "Wave",
    "Window",
    "Zones",
]
