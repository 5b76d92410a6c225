"""Defines the section `runtime`: the container engine, where it comes from, and what grapnel adds to it."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import DnsLabel, EngineVersion, PublicKey, RepositoryUrl


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


class EngineSource(Enum):
    """Where an engine's package comes from."""

    DISTRIBUTION = "distribution"
    DOCKER = "docker"
    CRIO = "crio"

    @property
    def owner(self) -> str:
        """Whose repository it is, in words."""
        return {"docker": "Docker", "crio": "CRI-O"}.get(self.value, "the distribution")


class EngineRepository(Section, frozen=True, kw_only=True):
    """Docker's or CRI-O's repository, or a mirror of it."""

    url: Annotated[
        RepositoryUrl | None,
        doc(
            "URL of a mirror, https or file; of Docker's the archive's root with apt, and the folder of the node's "
            "release with dnf, of CRI-O's the folder that has deb and rpm; null: Docker's own, or CRI-O's of the "
            "declared version."
        ),
    ] = None
    key: Annotated[PublicKey, doc("Key that signs the packages, as armored text.")]


class Runtime(Section, frozen=True, kw_only=True):
    """The container engine, and how a container gets a GPU from it."""

    enabled: Annotated[
        bool, doc("Whether grapnel configures a container engine; false: it leaves engines and containers alone.")
    ] = True
    engine: Annotated[
        Engine, doc("The node's container engine; k3s, rke2, k0s, microk8s: the containerd that it brings.")
    ] = Engine.CONTAINERD
    install: Annotated[bool, doc("Whether to install the engine where there is none.")] = True
    source: Annotated[
        EngineSource,
        doc(
            "Where the engine's package comes from; distribution: the node's own system; docker: Docker's repository, "
            "which has containerd.io and docker-ce; crio: CRI-O's. An engine of another source stays as it is."
        ),
    ] = EngineSource.DISTRIBUTION
    repository: Annotated[
        EngineRepository | None,
        doc("That repository with its key, or a mirror of it, for sources docker and crio; null: none."),
    ] = None
    version: Annotated[
        EngineVersion | None,
        doc(
            "Upstream version of the engine's package, quoted; an engine of another version is exchanged, out of "
            "service, and given back where the new one does not work; null: whichever is there, or comes."
        ),
    ] = None
    hold: Annotated[
        bool,
        doc(
            "Whether the engine's packages are held, so that no other upgrade restarts it; what somebody else holds is "
            "never let go."
        ),
    ] = False
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
