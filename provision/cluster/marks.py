"""Renders the labels and the annotation of a Node's upgrade (``docs/contracts/node-state``), and their patch."""

from __future__ import annotations

from typing import Any, Final

from provision.cluster.record import encode_record
from provision.rollout.model import Phase, Record

UPGRADE: Final = "grapnel.dev/upgrade"  # label: the phase; annotation: the record, all that is ever read back
NVIDIA_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"  # label for people's dashboards, never read

# The states of NVIDIA's k8s-operator-libs (pkg/upgrade); theirs have one state for what is two phases here.
NVIDIA_WORDS: Final = {
    Phase.CORDON: "cordon-required",
    Phase.JOBS: "wait-for-jobs-required",
    Phase.DRAIN: "drain-required",
    Phase.RELEASE: "pod-restart-required",
    Phase.SWAP: "pod-restart-required",
    Phase.VERIFY: "validation-required",
    Phase.RESUME: "uncordon-required",
    Phase.DONE: "upgrade-done",
    Phase.ROLLBACK: "pod-restart-required",
    Phase.RETURNED: "upgrade-failed",
    Phase.FAILED: "upgrade-failed",
}


def render_patch(record: Record | None, *, cordoned: bool | None, resource_version: str) -> dict[str, Any]:
    """Return the JSON merge patch of a Node that remembers ``record`` and sets the cordon, on exactly that version.

    A null takes a key away; ``cordoned=None`` leaves the cordon alone.
    """
    phase = None if record is None else record.phase
    patch: dict[str, Any] = {
        "metadata": {
            "resourceVersion": resource_version,
            "labels": {
                UPGRADE: None if phase is None else phase.value,
                NVIDIA_STATE: None if phase is None else NVIDIA_WORDS[phase],
            },
            "annotations": {UPGRADE: None if record is None else encode_record(record)},
        }
    }
    if cordoned is not None:
        patch["spec"] = {"unschedulable": cordoned}
    return patch
