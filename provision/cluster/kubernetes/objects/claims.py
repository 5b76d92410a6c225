"""Defines the parts of ResourceClaims and ResourceSlices (resource.k8s.io) that are read."""

from __future__ import annotations

from collections import Counter

from provision.cluster.kubernetes.objects.core import ApiObject, Metadata

_EXTENDED = "resource.kubernetes.io/extended-resource-claim"  # annotation of the scheduler's own


class Allocated(ApiObject, frozen=True, kw_only=True):
    """One device of a claim; with ``admin_access`` others may have it as well.

    ``consumed_capacity`` is what it takes of a device that several claims may have.
    """

    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, str] = {}


class AllocatedDevices(ApiObject, frozen=True, kw_only=True):
    """The devices of a claim."""

    results: tuple[Allocated, ...] = ()


class Allocation(ApiObject, frozen=True, kw_only=True):
    """What a claim was given."""

    devices: AllocatedDevices = AllocatedDevices()


class ResourceClaimState(ApiObject, frozen=True, kw_only=True):
    """``allocation`` is None until it was given something."""

    allocation: Allocation | None = None


class ExactRequest(ApiObject, frozen=True, kw_only=True):
    """So many devices of a class; 0 where all of a node are asked for."""

    device_class_name: str = ""
    count: int = 0
    allocation_mode: str = "ExactCount"


class DeviceRequest(ApiObject, frozen=True, kw_only=True):
    """What is asked for; ``exactly`` is None where there are alternatives, and in versions before v1beta2."""

    exactly: ExactRequest | None = None


class DeviceRequests(ApiObject, frozen=True, kw_only=True):
    """What a claim asks for."""

    requests: tuple[DeviceRequest, ...] = ()


class ResourceClaimSpec(ApiObject, frozen=True, kw_only=True):
    devices: DeviceRequests = DeviceRequests()


class ResourceClaim(ApiObject, frozen=True, kw_only=True):
    """A ResourceClaim; its status is the same in the versions since v1beta1."""

    metadata: Metadata
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimState = ResourceClaimState()

    @property
    def is_extended(self) -> bool:
        """Whether the scheduler made it for extended resources of a pod."""
        return self.metadata.annotations.get(_EXTENDED) == "true"

    @property
    def results(self) -> tuple[Allocated, ...]:
        """Its devices, none until it is allocated."""
        return () if self.status.allocation is None else self.status.allocation.devices.results

    @property
    def drivers(self) -> frozenset[str]:
        """The drivers of its devices."""
        return frozenset(each.driver for each in self.results)

    @property
    def wanted(self) -> dict[str, int]:
        """How many devices it asks for, by class; without those of which it takes all, or one of several."""
        exact = [each.exactly for each in self.spec.devices.requests if each.exactly is not None]
        counted: Counter[str] = Counter()
        for each in exact:
            if each.allocation_mode == "ExactCount":
                counted[each.device_class_name] += max(1, each.count)
        return dict(counted)


class DeviceTaint(ApiObject, frozen=True, kw_only=True):
    """What keeps claims off a device."""

    effect: str = ""


class Capacity(ApiObject, frozen=True, kw_only=True):
    """A quantity, as the API server writes it."""

    value: str = ""


class PublishedDevice(ApiObject, frozen=True, kw_only=True):
    """A device of a slice; with ``allow_multiple_allocations`` several claims may have parts of its ``capacity``."""

    name: str
    taints: tuple[DeviceTaint, ...] = ()
    capacity: dict[str, Capacity] = {}
    allow_multiple_allocations: bool | None = None


class Pool(ApiObject, frozen=True, kw_only=True):
    """Slices of a ``generation`` replace those of former ones."""

    name: str = ""
    generation: int = 0


class ResourceSliceSpec(ApiObject, frozen=True, kw_only=True):
    """Devices of a driver, on a node where ``node_name`` says so."""

    driver: str = ""
    node_name: str = ""
    pool: Pool = Pool()
    devices: tuple[PublishedDevice, ...] = ()


class ResourceSlice(ApiObject, frozen=True, kw_only=True):
    """A ResourceSlice; before v1beta2, taints are not found."""

    metadata: Metadata
    spec: ResourceSliceSpec
