"""Renders the Secret and the Job of a run on one node. Pure.

The Job's pod is root on the host, by design: it installs drivers. What it is given beyond that is nothing: no token of
the API, no other node's request, and a Secret that is deleted with it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from provision.cluster.kubernetes.pods.gpu_pods import NODE_JOB
from provision.controller.jobs.seal import JOB_UID, SEAL_KEY

if TYPE_CHECKING:
    from provision.controller.jobs.seal import Seal

REQUEST: Final = "request.json.gz"
NODE: Final = "grapnel.dev/node"  # annotation: the Node, for people
_SCRATCH: Final = "/tmp"  # of the pod alone
FOLDER: Final = "/run/grapnel-job"
CONTAINER: Final = "agent"
GRACE_S: Final = 30
KEPT_S: Final = 600  # after its end, for people who look; it is deleted earlier when it was read to the end
_MANAGED: Final = {"app.kubernetes.io/name": "grapnel", "app.kubernetes.io/managed-by": "grapnel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobKind:
    """What all Jobs of a controller have in common. ``pull_secrets`` are names of Secrets for the image's registry."""

    image: str
    namespace: str
    pull_secrets: tuple[str, ...] = ()


def label_of(node: str) -> str:
    """Return the value of the label by which the Jobs of a node are found; a Node's name may be too long for one."""
    return hashlib.sha256(node.encode()).hexdigest()[:32]


def render_secret(kind: JobKind, name: str, seal: Seal, request: bytes) -> dict[str, Any]:
    """Return the Secret with what is to be done, and what to seal its log with; it goes with its Job."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": seal.job, "controller": True}
    data = {REQUEST: gzip.compress(request, mtime=0), SEAL_KEY: seal.key, JOB_UID: seal.job.encode()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "namespace": kind.namespace,
            "labels": dict(_MANAGED),
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": {key: base64.b64encode(value).decode() for key, value in data.items()},
    }


def render_job(kind: JobKind, name: str, node: str, timeout_s: int) -> dict[str, Any]:
    """Return the Job of a run on a node."""
    labels = {**_MANAGED, NODE_JOB: label_of(node)}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": kind.namespace, "labels": labels, "annotations": {NODE: node}},
        "spec": {
            "backoffLimit": 6,  # restarts, such as by a reboot that the run itself asks for
            "podReplacementPolicy": "Failed",  # not beside one that is still ending: two would be at work on the node
            "activeDeadlineSeconds": timeout_s + 2 * GRACE_S,
            "ttlSecondsAfterFinished": KEPT_S,
            "template": {
                "metadata": {"labels": labels, "annotations": {NODE: node}},
                "spec": _pod(kind, name, node),
            },
        },
    }


def _pod(kind: JobKind, name: str, node: str) -> dict[str, Any]:
    return {
        # Bound by name: the scheduler puts nothing on a Node that is cordoned, and this is how it is repaired.
        "nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "priorityClassName": "system-node-critical",
        # A node that reboots in the middle of its run goes on with it: what was done is found done.
        "restartPolicy": "OnFailure",
        "terminationGracePeriodSeconds": GRACE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "hostPID": True,  # the host's namespaces are entered by its process 1
        "hostNetwork": True,  # packages are fetched as the host fetches them; a CNI may be down
        "dnsPolicy": "Default",
        **({"imagePullSecrets": [{"name": each} for each in kind.pull_secrets]} if kind.pull_secrets else {}),
        "containers": [
            {
                "name": CONTAINER,
                "image": kind.image,
                "imagePullPolicy": "IfNotPresent",
                "terminationMessagePolicy": "FallbackToLogsOnError",  # an image that is another one says so
                "command": ["grapnel", "agent", "--request", f"{FOLDER}/{REQUEST}"],
                "env": [{"name": "HOME", "value": _SCRATCH}, {"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
                # Root in all namespaces of the host is what installing a driver is.
                "securityContext": {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True},
                "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
                "volumeMounts": [
                    {"name": "request", "mountPath": FOLDER, "readOnly": True},
                    {"name": "tmp", "mountPath": _SCRATCH},
                ],
            }
        ],
        "volumes": [
            {"name": "request", "secret": {"secretName": name, "defaultMode": 0o400}},
            {"name": "tmp", "emptyDir": {}},
        ],
    }
