"""Renders the labels and the annotation of a Node's upgrade (``docs/contracts/node-state``), and their patch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.objects import Taint
from provision.cluster.pod_rules import TAINT, TAINT_EFFECT
from provision.cluster.record import encode_record
from provision.rollout.model import Phase, Record

if TYPE_CHECKING:
    from provision.cluster.objects import Node

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


def render_patch(record: Record | None, *, cordoned: bool | None, node: Node) -> dict[str, Any]:
    """Return the JSON merge patch of a Node that remembers ``record`` and sets the cordon, on exactly that version.

    A null takes a key away; ``cordoned=None`` leaves the cordon alone. Such a patch can only replace all taints
    together: those of others are written as they are, and nothing is where ours need not change.
    """
    phase = None if record is None else record.phase
    patch: dict[str, Any] = {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {
                UPGRADE: None if phase is None else phase.value,
                NVIDIA_STATE: None if phase is None else NVIDIA_WORDS[phase],
            },
            "annotations": {UPGRADE: None if record is None else encode_record(record)},
        }
    }
    spec: dict[str, Any] = {} if cordoned is None else {"unschedulable": cordoned}
    taints = _taints(record, node.spec.taints)
    if taints != node.spec.taints:
        spec["taints"] = [msgspec.to_builtins(taint) for taint in taints]
    return patch | ({"spec": spec} if spec else {})


def _taints(record: Record | None, present: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return the taints that a node has with this record."""
    wants = record is not None and record.is_tainted and not record.phase.is_in_service
    if wants == any(each.key == TAINT for each in present):
        return present
    others = tuple(each for each in present if each.key != TAINT)
    return (*others, Taint(key=TAINT, effect=TAINT_EFFECT)) if wants else others
