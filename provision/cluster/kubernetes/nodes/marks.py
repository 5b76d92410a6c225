"""Renders the labels and annotations of a Node's upgrade (``docs/contracts/node-state``), and their patch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from provision.cluster.errors import RecordError
from provision.cluster.kubernetes.nodes.others import OPT_OUT, is_repaired
from provision.cluster.kubernetes.objects.nodes import Taint
from provision.cluster.kubernetes.pods.pod_rules import TAINT, TAINT_EFFECT
from provision.cluster.record import decode_record, encode_record
from provision.rollout.model import Phase, Record
from provision.rollout.requests import Step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.cluster.kubernetes.objects.nodes import Node

UPGRADE: Final = "grapnel.dev/upgrade"  # label: the phase; annotation: the record, all that is ever read back
NVIDIA_STATE: Final = "nvidia.com/gpu-driver-upgrade-state"  # label for people's dashboards, never read
AS_DECLARED: Final = "grapnel.dev/as-declared"  # annotation: the fingerprint that a controller has brought the node to
LOOKED_AT: Final = "grapnel.dev/looked-at"  # annotation: when its daemon had spoken last by then

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
NODE_MAINTENANCE: Final = "node-maintenance-required"  # of its requestor mode: a NodeMaintenance is waited for


def render_patch(record: Record | None, *, cordoned: bool | None, node: Node) -> dict[str, Any]:
    """Return the JSON merge patch of a Node that remembers ``record`` and sets the cordon, on exactly that version.

    A null takes a key away; ``cordoned=None`` leaves the cordon alone. Such a patch can only replace all taints
    together: those of others are written as they are, and nothing is where ours need not change. That the node is as
    declared is withdrawn together with the record that names the first effect on it, whoever writes that record.
    """
    phase = None if record is None else record.phase
    patch: dict[str, Any] = {
        "metadata": {
            "resourceVersion": node.metadata.resource_version,
            "labels": {
                UPGRADE: None if phase is None else phase.value,
                NVIDIA_STATE: None if record is None or record.kind.is_in_place else _nvidia_word(record),
                **_opt_out(record, node),
            },
            "annotations": {
                UPGRADE: None if record is None else encode_record(record),
                **_withdrawn(record, node),
            },
        }
    }
    spec: dict[str, Any] = {} if cordoned is None else {"unschedulable": cordoned}
    taints = _taints(record, node.spec.taints)
    if taints != node.spec.taints:
        spec["taints"] = [msgspec.to_builtins(taint) for taint in taints]
    return patch | ({"spec": spec} if spec else {})


def steps_of(patch: Mapping[str, Any], node: Node) -> Iterator[Step]:
    """Yield what a patch of `render_patch` changes of a Node; what is so already is not told."""
    for kind, present in (("label", node.metadata.labels), ("annotation", node.metadata.annotations)):
        for key, value in patch["metadata"].get(f"{kind}s", {}).items():
            if value != present.get(key):
                yield Step("remove" if value is None else "write", f"{kind} {key}")
    spec = patch.get("spec", {})
    if spec.get("unschedulable", node.spec.unschedulable) != node.spec.unschedulable:
        yield Step("cordon" if spec["unschedulable"] else "uncordon", f"Node {node.metadata.name}")
    if "taints" in spec:
        yield Step("write" if any(each["key"] == TAINT for each in spec["taints"]) else "remove", f"taint {TAINT}")


def _withdrawn(record: Record | None, node: Node) -> dict[str, None]:
    """Return what takes away the claim that a node is as declared, empty if there is none or its upgrade is done."""
    is_changing = record is not None and record.phase is not Phase.DONE
    return {AS_DECLARED: None} if is_changing and AS_DECLARED in node.metadata.annotations else {}


def render_withdrawal(node: Node) -> dict[str, Any]:
    """Return the JSON merge patch that takes the claim away from exactly that Node."""
    return {"metadata": {"uid": node.metadata.uid, "annotations": {AS_DECLARED: None}}}


def _nvidia_word(record: Record) -> str:
    if record.phase is Phase.CORDON and record.is_requested:
        return NODE_MAINTENANCE
    return NVIDIA_WORDS[record.phase]


def _opt_out(record: Record | None, node: Node) -> dict[str, str | None]:
    """Return the labels that keep other tools off the node: set while it is upgraded, taken away with its end.

    A record names which of them were not set before. Whatever else it names is not touched: a node may write its own.
    """
    former = former_record(node)
    before = () if former is None or former.phase.is_over else former.opted_out
    now = () if record is None or record.phase.is_over else record.opted_out
    kept = OPT_OUT[:1] if is_repaired(node) else ()
    return {
        key: "false" if key in now else None for key in OPT_OUT if key in now or (key in before and key not in kept)
    }


def former_record(node: Node) -> Record | None:
    """Return what the Node remembers; None as well where that cannot be read."""
    text = node.metadata.annotations.get(UPGRADE)
    try:
        return None if text is None else decode_record(text)
    except RecordError:
        return None


def _taints(record: Record | None, present: tuple[Taint, ...]) -> tuple[Taint, ...]:
    """Return the taints that a node has with this record."""
    wants = record is not None and record.is_tainted and not record.phase.is_in_service
    if wants == any(each.key == TAINT for each in present):
        return present
    others = tuple(each for each in present if each.key != TAINT)
    return (*others, Taint(key=TAINT, effect=TAINT_EFFECT)) if wants else others
