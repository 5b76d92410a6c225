"""Lists what grapnel needs permission for in a cluster. Pure.

``deploy/rbac`` grants exactly this, and a test compares.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

LEASE_NAMESPACE: Final = "kube-system"  # there is one in every cluster, and the control plane's own leases are there
LEASE_NAME: Final = "grapnel-upgrade"  # of whoever changes nodes, while that goes on
LEADER_NAME: Final = "grapnel-controller"  # of the controller's replica that leads, for as long as it does
GRANT: Final = "deploy/rbac/operator.yaml"
REPLACE_GRANT: Final = "deploy/rbac/replace-first.yaml"
VIEW_GRANT: Final = "deploy/rbac/viewer.yaml"
ON_CALL_GRANT: Final = "deploy/rbac/on-call.yaml"
REQUESTING_GRANT: Final = "deploy/rbac/requesting.yaml"
TAINTING_GRANT: Final = "deploy/rbac/device-taints.yaml"
TENANCY_GRANT: Final = "deploy/rbac/tenancy.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """One permission. ``resource`` has its subresource after a slash, ``group`` is empty for core."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        place = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{f' {self.name}' if self.name else ''}{place}"

    @property
    def rule(self) -> str:
        """The rule of a Role or ClusterRole that grants it, in YAML's flow style."""
        names = f', resourceNames: ["{self.name}"]' if self.name else ""
        return f'{{apiGroups: ["{self.group}"], resources: ["{self.resource}"], verbs: ["{self.verb}"]{names}}}'


def _lease(verb: str, name: str = LEASE_NAME) -> Permission:
    return Permission(verb=verb, resource="leases", group="coordination.k8s.io", namespace=LEASE_NAMESPACE, name=name)


NEEDED: Final = (
    Permission(verb="get", resource="nodes"),
    Permission(verb="list", resource="nodes"),
    Permission(verb="watch", resource="nodes"),
    Permission(verb="patch", resource="nodes"),
    Permission(verb="list", resource="pods"),
    Permission(verb="watch", resource="pods"),
    Permission(verb="create", resource="pods/eviction"),
    Permission(verb="get", resource="runtimeclasses", group="node.k8s.io"),
    Permission(verb="create", resource="runtimeclasses", group="node.k8s.io"),
    _lease("get"),
    _lease("update"),
    _lease("create", name=""),  # a create cannot be limited to a name: the name is not known when it is decided
)

# Without these an apply says less, or evicts more: no budget is in a plan, every pod with a ResourceClaim counts as
# one with a GPU, and pods are evicted by the Eviction API even where EvictionRequests are served; status and explain
# do not know what is published for claims, and `explain claim` not what their classes want.
HELPFUL: Final = (
    Permission(verb="list", resource="poddisruptionbudgets", group="policy"),
    Permission(verb="list", resource="resourceclaims", group="resource.k8s.io"),
    Permission(verb="list", resource="resourceslices", group="resource.k8s.io"),
    Permission(verb="list", resource="deviceclasses", group="resource.k8s.io"),
    Permission(verb="list", resource="evictionrequests", group="lifecycle.k8s.io"),
    Permission(verb="create", resource="evictionrequests", group="lifecycle.k8s.io"),
    Permission(verb="delete", resource="evictionrequests", group="lifecycle.k8s.io"),
    Permission(verb="list", resource="evictions", group="lifecycle.k8s.io"),
)

# For `grapnel remove`, which says without it that RuntimeClasses stay.
REMOVING: Final = (Permission(verb="delete", resource="runtimeclasses", group="node.k8s.io"),)

# For `rollout.drain.replaceFirst`, beside what is NEEDED.
REPLACING: Final = (
    Permission(verb="get", resource="replicasets", group="apps"),
    Permission(verb="get", resource="deployments", group="apps"),
    Permission(verb="patch", resource="deployments", group="apps"),
)

# For `pause` and `resume` (the lease), `skip`, `retry`, `abandon` and a `rollback` by the controller (nodes; `abandon`
# takes EvictionRequests back), and for who carries it out.
ASKING: Final = (
    Permission(verb="list", resource="nodes"),
    Permission(verb="get", resource="nodes"),
    Permission(verb="patch", resource="nodes"),
    _lease("get"),
    _lease("get", LEADER_NAME),
    _lease("patch"),
    _lease("create", name=""),
    Permission(verb="list", resource="evictionrequests", group="lifecycle.k8s.io"),
    Permission(verb="delete", resource="evictionrequests", group="lifecycle.k8s.io"),
)

# For `grapnel status`; without `watch` it lists, and without the lease it says what it cannot know.
VIEWING: Final = (
    Permission(verb="list", resource="nodes"),
    Permission(verb="watch", resource="nodes"),
    Permission(verb="list", resource="gpustacks", group="grapnel.dev"),
    _lease("get"),
    _lease("get", LEADER_NAME),
)

# For Events and conditions on Nodes; without them an upgrade goes on, and says that they are not written.
TELLING: Final = (
    Permission(verb="create", resource="events"),
    Permission(verb="patch", resource="events"),
    Permission(verb="patch", resource="nodes/status"),
)

# For `rollout.maintenance.nodeMaintenances`: those of grapnel are in one namespace.
REQUESTING: Final = tuple(
    Permission(verb=verb, resource="nodemaintenances", group="maintenance.nvidia.com", namespace="default")
    for verb in ("get", "list", "create", "delete")
)

# For `rollout.drain.claims: taint`, which ends pods with claims whatever their disruption budgets say.
TAINTING: Final = tuple(
    Permission(verb=verb, resource="devicetaintrules", group="resource.k8s.io") for verb in ("list", "create", "delete")
)

# For quotas, priorities and queues of `tenancy`: an apply that makes an object is a patch and a create.
_KEEPING: Final = ("get", "list", "create", "patch", "delete")
TENANTS: Final = tuple(
    Permission(verb=verb, resource=resource, group=group)
    for resource, group in (
        ("resourcequotas", ""),
        ("limitranges", ""),
        ("priorityclasses", "scheduling.k8s.io"),
    )
    for verb in _KEEPING
)
QUEUES: Final = tuple(
    Permission(verb=verb, resource=resource, group="kueue.x-k8s.io")
    for resource in ("resourceflavors", "cohorts", "clusterqueues", "localqueues")
    for verb in _KEEPING
)

# The words of Kubernetes' own authorizers (apiserver, pkg/endpoints/handlers/responsewriters/errors.go).
_REFUSAL: Final = re.compile(
    r'User "(?P<user>[^"]*)" cannot (?P<verb>[a-z]+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)")?'
)


def missing_permission(message: str) -> tuple[str, Permission] | None:
    """Return the user and what it may not do from the message of a 403; None when that is about something else."""
    if (found := _REFUSAL.search(message)) is None:
        return None
    permission = Permission(
        verb=found["verb"], resource=found["resource"], group=found["group"], namespace=found["namespace"] or ""
    )
    return found["user"], permission


def grant_of(permission: Permission) -> str:
    """Return the file of roles that grants a permission; what only looking needs is in one of its own."""
    return VIEW_GRANT if permission in VIEWING and permission not in NEEDED else GRANT
