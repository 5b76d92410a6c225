"""Defines the declaration and its sections; the sections of driver and rollout are beside it."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final, Literal

from provision.declaration.spec.model.driver import Driver
from provision.declaration.spec.model.mig import Mig
from provision.declaration.spec.model.node import Node
from provision.declaration.spec.model.plugin import Plugin
from provision.declaration.spec.model.rollout.policy import Rollout
from provision.declaration.spec.model.scheduler import Scheduler
from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.tenancy import Tenancy
from provision.declaration.spec.model.texts import DnsLabel

API_VERSION: Final = "grapnel.dev/v1alpha1"
KIND: Final = "GpuStack"


class Engine(Enum):
    """The container engine of a node."""

    CONTAINERD = "containerd"
    CRIO = "crio"
    DOCKER = "docker"
    PODMAN = "podman"
    K3S = "k3s"
    RKE2 = "rke2"
    K0S = "k0s"
    MICROK8S = "microk8s"

    @property
    def works_with_kubelet(self) -> bool:
        """Whether a kubelet can start containers through it."""
        return self is not Engine.PODMAN


class HandEdits(Enum):
    """What becomes of a file of grapnel's in the engine's configuration that somebody has edited."""

    REFUSE = "refuse"
    OVERWRITE = "overwrite"


class Entitlement(Enum):
    """What gives a container its GPU."""

    KUBELET = "kubelet"
    ENV = "env"


class Metadata(Section, frozen=True, kw_only=True):
    """Names the declaration."""

    name: Annotated[DnsLabel, doc("What messages and reports call this declaration.")] = "default"


class Runtime(Section, frozen=True, kw_only=True):
    """The container engine, and how a container gets a GPU from it."""

    enabled: Annotated[
        bool, doc("Whether grapnel configures a container engine; false: it leaves engines and containers alone.")
    ] = True
    engine: Annotated[
        Engine, doc("The node's container engine; k3s, rke2, k0s, microk8s: the containerd that it brings.")
    ] = Engine.CONTAINERD
    install: Annotated[bool, doc("Whether to install the distribution's engine where there is none.")] = True
    handler: Annotated[DnsLabel, doc("Runtime handler to add to the engine; a RuntimeClass refers to it.")] = "nvidia"
    adopt: Annotated[
        bool,
        doc(
            "Whether to take over a handler of that name that another product added; what it replaces is kept on the "
            "node and given back by remove. false: such a node is refused."
        ),
    ] = False
    handler_aliases: Annotated[
        tuple[DnsLabel, ...],
        doc(
            "Further names of the handler, each with a RuntimeClass: for pods that name another one.", uniqueItems=True
        ),
    ] = ()
    hand_edits: Annotated[
        HandEdits,
        doc(
            "What to do about a file that grapnel wrote into the engine's configuration and somebody edited; refuse: "
            "nothing on the node; overwrite: keep the edited file beside it, then write it again."
        ),
    ] = HandEdits.REFUSE
    entitlement: Annotated[
        Entitlement,
        doc(
            "What gives a container its GPU; kubelet: what the device plugin allocated; "
            "env: NVIDIA_VISIBLE_DEVICES, where every image is trusted."
        ),
    ] = Entitlement.KUBELET

    @property
    def handlers(self) -> tuple[str, ...]:
        """All names under which the engine has the handler."""
        return (self.handler, *self.handler_aliases)


class StackSpec(Section, frozen=True, kw_only=True):
    """What every node of a group should be: the effective declaration of one node has this type."""

    driver: Driver = Driver()
    runtime: Runtime = Runtime()
    plugin: Plugin = Plugin()
    mig: Mig = Mig()
    node: Node = Node()
    tenancy: Tenancy = Tenancy()
    rollout: Rollout = Rollout()
    scheduler: Scheduler = Scheduler()


class GpuStack(Section, frozen=True, kw_only=True):
    """The declaration, as it stands in grapnel.yaml."""

    api_version: Annotated[Literal["grapnel.dev/v1alpha1"], doc("Version of this format.")]
    kind: Annotated[Literal["GpuStack"], doc("Type of the document.")]
    metadata: Metadata = Metadata()
    spec: StackSpec
