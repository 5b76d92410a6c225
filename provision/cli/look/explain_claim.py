"""`grapnel explain claim`: who has what by a ResourceClaim, or why it was given nothing; from the API alone."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from provision.base.errors import GrapnelError
from provision.cli.look.answering import folder, newest, rendered, tried
from provision.cluster.kubernetes.api.exchange import StatusError
from provision.cluster.kubernetes.nodes.claim_reasons import ClaimFacts, classes_of, explain_claim
from provision.cluster.kubernetes.objects.claims import DescribedSlice, DeviceClass, ResourceClaim
from provision.cluster.kubernetes.objects.pods import AskedPod
from provision.cluster.kubernetes.pods.claims import served_path
from provision.cluster.kubernetes.pods.gpu_pods import claim_names
from provision.declaration.spec.validate import nearest

if TYPE_CHECKING:
    from provision.cluster.kubernetes.api.client import Api
    from provision.report.progress.watching import Drawing


def claim_explained(api: Api, namespace: str, name: str) -> Drawing:
    """Return what a claim has, or why it has nothing. Raises GrapnelError where there is none."""
    try:
        served = served_path(api)
    except StatusError:
        raise GrapnelError(
            f"{api.name} has no ResourceClaims", hint="Kubernetes 1.34 and later serve them by default"
        ) from None
    here = api.list_all(f"{served}/namespaces/{quote(namespace, safe='')}/resourceclaims", ResourceClaim)
    claim = next((each for each in here if each.metadata.name == name), None)
    if claim is None:
        raise _no_claim(api, namespace, name, here)
    unread: list[str] = []
    pods = tried(lambda: api.list_all(folder(namespace, "pods"), AskedPod), "its pods", unread)
    using = None if pods is None else tuple(each for each in pods if name in claim_names(each))
    is_open = not claim.results
    classes = tried(lambda: _classes(api, served, claim), "DeviceClasses", unread) if is_open else {}
    slices = tried(lambda: api.list_all(f"{served}/resourceslices", DescribedSlice), "what nodes publish", unread)
    every = (
        tried(lambda: api.list_all(f"{served}/resourceclaims", ResourceClaim), "other claims", unread)
        if is_open
        else ()
    )
    troubled = [each for each in using or () if each.status.phase != "Running"]
    warnings = tried(lambda: _warnings_of(api, troubled), "Events about its pods", unread) or []
    facts = ClaimFacts(
        claim=claim,
        pods=using,
        classes=classes or {},
        slices=None if slices is None else tuple(slices),
        claims=None if every is None else tuple(every),
        warnings=tuple(warnings),
        unread=tuple(unread),
    )
    return tuple(rendered(explain_claim(facts)))


def _no_claim(api: Api, namespace: str, name: str, here: list[ResourceClaim]) -> GrapnelError:
    near = nearest(name, [each.metadata.name for each in here])
    hint = (
        f"did you mean {namespace}/{near}?" if near else f"`kubectl -n {namespace} get resourceclaims` shows the names"
    )
    return GrapnelError(f"there is no resource claim {namespace}/{name} in {api.name}", hint=hint)


def _classes(api: Api, served: str, claim: ResourceClaim) -> dict[str, DeviceClass | None]:
    """Return the classes that a claim names; None is not there. Raises ClusterError."""
    known = {each.metadata.name: each for each in api.list_all(f"{served}/deviceclasses", DeviceClass)}
    return {name: known.get(name) for name in classes_of(claim)}


def _warnings_of(api: Api, pods: list[AskedPod]) -> list[str]:
    """Return the last warnings about pods, but for the scheduler's, which their status has. Raises ClusterError."""
    found = [
        line
        for pod in pods[:1]
        for line in newest(api, pod.metadata.namespace, f"involvedObject.uid={pod.metadata.uid},type=Warning")
    ]
    return [each for each in found if not each.startswith("FailedScheduling")]
