"""Checks, before anything is touched, that the API server allows everything that an upgrade may need."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.api.exchange import Request
from provision.cluster.kubernetes.permissions import (
    GRANT,
    NEEDED,
    QUEUES,
    REPLACE_GRANT,
    REPLACING,
    REQUESTING,
    REQUESTING_GRANT,
    TAINTING,
    TAINTING_GRANT,
    TENANCY_GRANT,
    TENANTS,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.permissions import Permission

_PATH = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


class _Verdict(msgspec.Struct, frozen=True):
    allowed: bool


class _Review(msgspec.Struct, frozen=True):
    status: _Verdict


def require_access(
    api: Api, *, replacing: Collection[str] = (), requesting: bool = False, tainting: bool = False
) -> None:
    """Raise ForbiddenError that names every permission that is missing, with the rules that grant them.

    ``replacing`` are the namespaces whose pods may have to be replaced before they leave, empty text for all of them.
    ``requesting``: NodeMaintenances are requested. ``tainting``: pods with claims are ended by taints of devices.
    """
    replaced = [replace(permission, namespace=place) for place in sorted(replacing) for permission in REPLACING]
    asked = (
        (NEEDED, f"{GRANT} grants everything that is needed"),
        (replaced, f"{REPLACE_GRANT} grants what rollout.drain.replaceFirst needs"),
        (REQUESTING if requesting else (), f"{REQUESTING_GRANT} grants what rollout.maintenance needs"),
        (TAINTING if tainting else (), f"{TAINTING_GRANT} grants what rollout.drain.claims needs"),
    )
    _require(api, asked)


def require_tenancy(api: Api, *, kueue: bool) -> None:
    """Do the same for what `tenancy` needs; with ``kueue`` for its queues as well."""
    wanted = (*TENANTS, *(QUEUES if kueue else ()))
    _require(api, ((wanted, f"{TENANCY_GRANT} grants what tenancy needs"),))


def _require(api: Api, asked: Sequence[tuple[Sequence[Permission], str]]) -> None:
    missing: list[Permission] = []
    grants: list[str] = []
    for permissions, grant in asked:
        found = [permission for permission in permissions if not _is_allowed(api, permission)]
        missing += found
        grants += [grant] if found else []
    if missing:
        rules = "".join(f"\n  - {permission.rule}" for permission in missing)
        raise ForbiddenError(
            f"these credentials may not {', '.join(str(each) for each in missing)} on {api.name}",
            hint=f"{'; '.join(grants)}; missing rules:{rules}",
        )


def _is_allowed(api: Api, permission: Permission) -> bool:
    resource, _, subresource = permission.resource.partition("/")
    attributes: dict[str, Any] = {
        "verb": permission.verb,
        "group": permission.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": permission.namespace,
        "name": permission.name,
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        return api.call(Request(method="POST", path=_PATH, body=body), _Review).status.allowed
    except (ForbiddenError, RefusedError):  # the question itself is not allowed here: each request will tell
        return True
