"""Defines the parts of ResourceClaims and ResourceSlices (resource.k8s.io) that are read."""

from __future__ import annotations

from collections import Counter
from typing import Any

from provision.cluster.kubernetes.objects.core import ApiObject, Condition, Metadata
from provision.cluster.kubernetes.objects.pods import Toleration

_EXTENDED = "resource.kubernetes.io/extended-resource-claim"  # annotation of the scheduler's own


class Allocated(ApiObject, frozen=True, kw_only=True):
    """One device of a claim; with ``admin_access`` others may have it as well.

    ``consumed_capacity`` is what it takes of a device that several claims may have.
    """

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    admin_access: bool | None = None
    consumed_capacity: dict[str, str] = {}
    tolerations: tuple[Toleration, ...] = ()


class AllocatedDevices(ApiObject, frozen=True, kw_only=True):
    """The devices of a claim."""

    results: tuple[Allocated, ...] = ()


class Allocation(ApiObject, frozen=True, kw_only=True):
    """What a claim was given."""

    devices: AllocatedDevices = AllocatedDevices()


class ReservedFor(ApiObject, frozen=True, kw_only=True):
    """Who may use what a claim has: a pod, where ``resource`` says so."""

    resource: str = ""
    name: str = ""


class ToldDevice(ApiObject, frozen=True, kw_only=True):
    """What a driver says of a device that a claim has."""

    driver: str = ""
    device: str = ""
    conditions: tuple[Condition, ...] = ()


class ResourceClaimState(ApiObject, frozen=True, kw_only=True):
    """``allocation`` is None until it was given something."""

    allocation: Allocation | None = None
    reserved_for: tuple[ReservedFor, ...] = ()
    devices: tuple[ToldDevice, ...] = ()


class Expression(ApiObject, frozen=True, kw_only=True):
    """A condition on a device, in CEL."""

    expression: str = ""


class Selector(ApiObject, frozen=True, kw_only=True):
    """``cel`` is None in a form that is not known here."""

    cel: Expression | None = None


class AskedCapacity(ApiObject, frozen=True, kw_only=True):
    """How much a device has to have left, by names of capacities."""

    requests: dict[str, str] = {}


class ExactRequest(ApiObject, frozen=True, kw_only=True):
    """So many devices of a class; 0 where all of a node are asked for. ``name`` is that of an alternative."""

    name: str = ""
    device_class_name: str = ""
    count: int = 0
    allocation_mode: str = "ExactCount"
    admin_access: bool | None = None
    selectors: tuple[Selector, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    capacity: AskedCapacity = AskedCapacity()


class DeviceRequest(ApiObject, frozen=True, kw_only=True):
    """What is asked for; ``exactly`` is None where there are alternatives, and in versions before v1beta2."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class Constraint(ApiObject, frozen=True, kw_only=True):
    """An attribute that all devices of these ``requests`` have in common, or none with another; no request: all."""

    requests: tuple[str, ...] = ()
    match_attribute: str = ""
    distinct_attribute: str = ""


class Opaque(ApiObject, frozen=True, kw_only=True):
    """What a driver is told."""

    driver: str = ""


class Configuration(ApiObject, frozen=True, kw_only=True):
    """``opaque`` is None in a form that is not known here."""

    opaque: Opaque | None = None


class DeviceRequests(ApiObject, frozen=True, kw_only=True):
    """What a claim asks for."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    config: tuple[Configuration, ...] = ()


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


class DeviceClassSpec(ApiObject, frozen=True, kw_only=True):
    """What a device has to be to be of a class."""

    selectors: tuple[Selector, ...] = ()


class DeviceClass(ApiObject, frozen=True, kw_only=True):
    """A class of devices, by which claims ask for them."""

    metadata: Metadata
    spec: DeviceClassSpec = DeviceClassSpec()


class DeviceTaint(ApiObject, frozen=True, kw_only=True):
    """What keeps claims off a device."""

    key: str = ""
    value: str = ""
    effect: str = ""


class ValidRange(ApiObject, frozen=True, kw_only=True):
    """Amounts from ``min`` on, in steps, where there is one."""

    min: str = ""
    max: str = ""
    step: str = ""


class RequestPolicy(ApiObject, frozen=True, kw_only=True):
    """How much of a capacity one claim may take, and takes where it does not say."""

    default: str = ""
    valid_values: tuple[str, ...] = ()
    valid_range: ValidRange | None = None


class Capacity(ApiObject, frozen=True, kw_only=True):
    """A quantity, as the API server writes it."""

    value: str = ""
    request_policy: RequestPolicy | None = None


class Consumption(ApiObject, frozen=True, kw_only=True):
    """What a device takes of a set of counters."""

    counter_set: str = ""
    counters: dict[str, Capacity] = {}


class CounterSet(ApiObject, frozen=True, kw_only=True):
    """Counters of which devices of a pool take parts."""

    name: str = ""
    counters: dict[str, Capacity] = {}


class PublishedDevice(ApiObject, frozen=True, kw_only=True):
    """A device of a slice; with ``allow_multiple_allocations`` several claims may have parts of its ``capacity``."""

    name: str
    taints: tuple[DeviceTaint, ...] = ()
    capacity: dict[str, Capacity] = {}
    allow_multiple_allocations: bool | None = None
    consumes_counters: tuple[Consumption, ...] = ()


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
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(ApiObject, frozen=True, kw_only=True):
    """A ResourceSlice; before v1beta2, taints are not found."""

    metadata: Metadata
    spec: ResourceSliceSpec


class Attribute(ApiObject, frozen=True, kw_only=True, rename={"number": "int", "flag": "bool"}):
    """One value of one type; none of these in a form that is not known here, such as a list."""

    string: str | None = None
    number: int | None = None
    flag: bool | None = None
    version: str | None = None

    @property
    def value(self) -> str | int | bool | None:
        """Whatever it is."""
        return next((each for each in (self.string, self.number, self.flag, self.version) if each is not None), None)


class DescribedDevice(PublishedDevice, frozen=True, kw_only=True):
    """A device with what selectors go by."""

    attributes: dict[str, Attribute] = {}


class DescribedPool(Pool, frozen=True, kw_only=True):
    """A pool is given from when all of its slices are there."""

    resource_slice_count: int = 0


class DescribedSliceSpec(ApiObject, frozen=True, kw_only=True):
    """The same as `ResourceSliceSpec`; a slice of no single node is in ``all_nodes`` or selects them."""

    driver: str = ""
    node_name: str = ""
    node_selector: dict[str, Any] | None = None
    per_device_node_selection: bool | None = None
    pool: DescribedPool = DescribedPool()
    devices: tuple[DescribedDevice, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class DescribedSlice(ApiObject, frozen=True, kw_only=True):
    """A slice that is asked about: more of it is read than of those that are listed by the thousand."""

    metadata: Metadata
    spec: DescribedSliceSpec
