"""The parts of ComputeDomains, of their claims and of nodes' slices that are read, and what is made for a domain.

Forms and names are those of NVIDIA's driver (api/nvidia.com/resource/v1beta1 and its controller at 9593204).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from provision.cluster.kubernetes.objects.claims import Allocated
from provision.cluster.kubernetes.objects.core import ApiObject, Metadata

if TYPE_CHECKING:
    from provision.cluster.kubernetes.objects.claims import DescribedSlice

DRIVER: Final = "compute-domain.nvidia.com"
GROUP: Final = "/apis/resource.nvidia.com/v1beta1"
DOMAINS: Final = f"{GROUP}/computedomains"
_VERSION: Final = "resource.nvidia.com/v1beta1"
_CONFIG: Final = "ComputeDomainChannelConfig"
_CLASS: Final = "compute-domain-default-channel.nvidia.com"
_LABEL: Final = "resource.nvidia.com/computeDomain"  # and NVIDIA's finalizer
_NAME: Final = "grapnel.dev/compute-domain"  # by which a node finds the domain of a claim
_REQUEST: Final = "channel"
SINGLE: Final = "Single"


class TemplateName(ApiObject, frozen=True, kw_only=True):
    """What the ResourceClaimTemplate of a domain is called."""

    name: str = ""


class Channel(ApiObject, frozen=True, kw_only=True):
    """How pods ask for a channel."""

    resource_claim_template: TemplateName = TemplateName()
    allocation_mode: str = SINGLE


class DomainSpec(ApiObject, frozen=True, kw_only=True):
    """``num_nodes`` have to be in it until it is Ready."""

    num_nodes: int = 0
    channel: Channel = Channel()


class ComputeDomain(ApiObject, frozen=True, kw_only=True):
    """A ComputeDomain; its status is compared as it was written."""

    metadata: Metadata
    spec: DomainSpec = DomainSpec()
    status: Any = None

    @property
    def is_going(self) -> bool:
        """Whether it is being deleted, from which no way leads back."""
        return self.metadata.deletion_timestamp is not None

    @property
    def is_of_another(self) -> bool:
        """Whether NVIDIA's controller serves it."""
        return _LABEL in self.metadata.finalizers

    @property
    def name(self) -> str:
        """How it is called in messages."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class Owned(ApiObject, frozen=True, kw_only=True):
    """Any object, of which matters who manages it."""

    metadata: Metadata


class ConfigMap(ApiObject, frozen=True, kw_only=True):
    """A ConfigMap; without ``data`` there is none."""

    metadata: Metadata
    data: dict[str, str] | None = None


class ClaimOpaque(ApiObject, frozen=True, kw_only=True):
    """What a driver is told, in whatever form."""

    driver: str = ""
    parameters: Any = None


class ClaimConfig(ApiObject, frozen=True, kw_only=True):
    """``opaque`` is None in a form that is not known here."""

    opaque: ClaimOpaque | None = None


class ClaimDevices(ApiObject, frozen=True, kw_only=True):
    """What a claim was given, and with what it was asked for."""

    results: tuple[Allocated, ...] = ()
    config: tuple[ClaimConfig, ...] = ()


class ClaimAllocation(ApiObject, frozen=True, kw_only=True):
    devices: ClaimDevices = ClaimDevices()


class ClaimStatus(ApiObject, frozen=True, kw_only=True):
    allocation: ClaimAllocation | None = None


class ChannelClaim(ApiObject, frozen=True, kw_only=True):
    """A ResourceClaim, as far as it asks for a channel."""

    metadata: Metadata
    status: ClaimStatus = ClaimStatus()


@dataclass(frozen=True, slots=True)
class Wish:
    """A claim of a namespace wants a node to be in the domain of that uid."""

    namespace: str
    domain: str
    node: str


@dataclass(frozen=True, slots=True)
class Place:
    """In which clique a node says that it is, and which domain has it; "" while none has."""

    node: str
    clique: str
    domain: str = ""


def wish_of(claim: ChannelClaim) -> Wish | None:
    """Return what a claim wants, once the scheduler has given it a node's channel; None for any other claim."""
    if claim.status.allocation is None:
        return None
    devices = claim.status.allocation.devices
    nodes = [each.pool for each in devices.results if each.driver == DRIVER and not each.admin_access]
    told = [each.opaque.parameters for each in devices.config if each.opaque and each.opaque.driver == DRIVER]
    if len(nodes) != 1 or len(told) != 1 or not isinstance(told[0], dict) or told[0].get("kind") != _CONFIG:
        return None
    domain = told[0].get("domainID")
    return Wish(claim.metadata.namespace, domain, nodes[0]) if isinstance(domain, str) and domain else None


def place_of(found: DescribedSlice) -> Place | None:
    """Return where a node says that it is; None for a slice without a channel, or of another node's pool."""
    spec = found.spec
    if spec.driver != DRIVER or not spec.node_name or spec.pool.name != spec.node_name:
        return None
    for device in spec.devices:
        clique, domain = (device.attributes.get(key) for key in ("clique", "domain"))
        if clique is not None and clique.string:
            return Place(spec.node_name, clique.string, (domain.string or "") if domain is not None else "")
    return None


def template_of(domain: ComputeDomain) -> dict[str, Any]:
    """Return the ResourceClaimTemplate of a domain. It goes with the domain."""
    meta = domain.metadata
    owner = {"apiVersion": _VERSION, "kind": "ComputeDomain", "name": meta.name, "uid": meta.uid, "controller": True}
    config = {"apiVersion": _VERSION, "kind": _CONFIG, "domainID": meta.uid, "allocationMode": SINGLE}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": domain.spec.channel.resource_claim_template.name,
            "namespace": meta.namespace,
            "labels": {_LABEL: meta.uid},
            "ownerReferences": [owner],
        },
        "spec": {
            "metadata": {"annotations": {_NAME: meta.name}},
            "spec": {
                "devices": {
                    "requests": [{"name": _REQUEST, "exactly": {"deviceClassName": _CLASS}}],
                    "config": [{"requests": [_REQUEST], "opaque": {"driver": DRIVER, "parameters": config}}],
                }
            },
        },
    }
