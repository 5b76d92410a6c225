"""Reads what a Node says of its machine: versions, what its node daemon reports, the GPUs that it offers. Pure."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.cluster.kubernetes.nodes.node_view import ANSWERS, DRIVER_READY, FRESH, GPUS_HEALTHY, moment
from provision.cluster.kubernetes.pods.devices import held_by
from provision.cluster.kubernetes.pods.gpu_pods import FINISHED, NVIDIA
from provision.rollout.status.reported import Daemon, Drift, Reported, User

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from provision.cluster.kubernetes.objects.core import Condition
    from provision.cluster.kubernetes.objects.nodes import Node
    from provision.cluster.kubernetes.objects.pods import Pod
    from provision.cluster.kubernetes.pods.devices import Claimed
    from provision.rollout.model import Record

AS_DECLARED: Final = "GPUNodeAsDeclared"  # conditions, labels: docs/contracts/node-state, node-labels
MODULE: Final = "grapnel.dev/driver.kernel-module"
_CAN: Final = re.compile(r"(?P<all>\d{1,5}) GPUs can be used")
_CANNOT: Final = re.compile(r"(?P<bad>\d{1,5}) of (?P<all>\d{1,5}) GPUs cannot be used: .*", re.DOTALL)
_NUMBER: Final = re.compile(r"\d{1,6}")
_KUBERNETES: Final = "kubernetes.io/"
_DRIFTS: Final = {"True": Drift.NONE, "False": Drift.DRIFTED, "Unknown": Drift.NOT_COMPARED}
_LONGEST: Final = 1024


def reported_of(node: Node, record: Record | None, now: datetime) -> Reported:
    """Return what a Node says of its machine at ``now``, by the API server's clock.

    What the daemon has not said again for half an hour is not what is so; nor is what it said before the last upgrade
    began. It says at once when it closes the driver, and when it has it again.
    """
    conditions = {each.type: each for each in node.status.conditions}
    info, ready = node.status.node_info, conditions.get("Ready")
    heard = None if ready is None else moment(ready.last_heartbeat_time)
    driver, gpus = conditions.get(DRIVER_READY), conditions.get(GPUS_HEALTHY)
    said = None if driver is None else moment(driver.last_heartbeat_time)
    daemon = Daemon.NO_REPORT if driver is None else _daemon(said, heard, now)
    quiet = Reported(
        is_ready=node.is_ready,
        heard=heard,
        kubelet=_word(info.kubelet_version),
        engine=_word(info.container_runtime_version).replace("://", " "),
        daemon=daemon,
        said=said,
        offered=devices_of(node.status.allocatable) if node.is_ready else None,
        capacity=devices_of(node.status.capacity),
    )
    if (
        driver is None
        or daemon is not Daemon.REPORTS
        or (record is not None and said is not None and said < record.began)
    ):
        return quiet
    return _with_gpus(_with_drift(_with_driver(quiet, driver, node), conditions.get(AS_DECLARED)), gpus)


def has_gpus(node: Node) -> bool:
    """Tell whether a Node has to do with GPUs: a node daemon has spoken there, or its kubelet knows of some."""
    return any(each.type in (DRIVER_READY, GPUS_HEALTHY) for each in node.status.conditions) or any(
        name.startswith(f"{NVIDIA}/") and text != "0" for name, text in node.status.capacity.items()
    )


def users_of(pods: Iterable[Pod], claims: Claimed | None = None) -> tuple[User, ...]:
    """Return the pods that hold devices of their node, in their order; those that have ended hold none.

    Of init containers, sidecars hold what they were given for as long as the pod is there. An extended resource that a
    pod has by a claim is told as what the claim has.
    """
    found = []
    for pod in pods:
        staying = (
            *pod.spec.containers,
            *(each for each in pod.spec.init_containers if each.restart_policy == "Always"),
        )
        devices: Counter[str] = Counter()
        for container in staying:
            devices.update(devices_of({**container.resources.requests, **container.resources.limits}))
        if (extended := pod.status.extended_resource_claim_status) is not None and claims:
            for mapping in extended.request_mappings:
                devices.pop(mapping.resource_name, None)
        devices.update(held_by(pod, claims or {}))
        if +devices and pod.status.phase not in FINISHED:
            name = printable(f"{pod.metadata.namespace}/{pod.metadata.name}", limit=_LONGEST)
            found.append(User(name, dict(+devices)))
    return tuple(sorted(found, key=lambda user: user.pod))


def devices_of(quantities: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of devices by resource: what is not Kubernetes' own, and has a domain."""
    return {
        printable(name, limit=128): int(text)
        for name, text in quantities.items()
        if "/" in name and _KUBERNETES not in name and _NUMBER.fullmatch(text)
    }


def _daemon(said: datetime | None, heard: datetime | None, now: datetime) -> Daemon:
    is_old = said is None or now - said > FRESH or (heard is not None and heard - said > FRESH)
    return Daemon.SILENT if is_old else Daemon.REPORTS


def _with_driver(quiet: Reported, said: Condition, node: Node) -> Reported:
    answers = ANSWERS.fullmatch(said.message) if said.status == "True" else None
    module = _word(node.metadata.labels.get(MODULE, "")) if answers else ""
    trouble = "" if answers else printable(said.message or said.reason, limit=_LONGEST)
    return replace(quiet, driver=answers["version"] if answers else "", module=module, driver_trouble=trouble)


def _with_gpus(quiet: Reported, said: Condition | None) -> Reported:
    if said is None or said.status == "Unknown":
        return quiet
    if can := _CAN.fullmatch(said.message):
        return replace(quiet, seen=int(can["all"]))
    if cannot := _CANNOT.fullmatch(said.message):
        trouble = printable(said.message, limit=_LONGEST)
        return replace(quiet, seen=int(cannot["all"]), unusable=int(cannot["bad"]), gpu_trouble=trouble)
    return quiet


def _with_drift(quiet: Reported, said: Condition | None) -> Reported:
    if said is None:
        return quiet
    drift = _DRIFTS.get(said.status, Drift.NOT_KNOWN)
    words = "" if drift is Drift.NONE else printable(said.message, limit=_LONGEST)
    return replace(quiet, drift=drift, drift_words=words)


def _word(text: str) -> str:
    return printable(text, limit=64)
