"""Reads from a Node what its upgrade has to respect: other tools that are at it, and labels of people. Pure.

What other tools write is a table, each key with its source. Whatever a Node says may only hurt itself: its kubelet may
write its annotations, conditions and most labels. Conditions that grapnel itself writes have a reason that begins with
``OWN_REASON``, and are not read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from provision.declaration.spec.model import RESPECTED, Tool

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from provision.cluster.kubernetes.objects.core import Condition
    from provision.cluster.kubernetes.objects.nodes import Node

SKIP: Final = "nvidia.com/gpu-driver-upgrade.skip"  # a label of NVIDIA's k8s-operator-libs, pkg/upgrade/consts.go
PRIORITY: Final = "grapnel.dev/upgrade-priority"  # label: a number; the higher, the earlier within a wave
MOST_PRIORITY: Final = 1000
OWN_REASON: Final = "Grapnel"
_NUMBER: Final = re.compile(r"[0-9]{1,4}")  # the value of a label cannot begin with a sign
_WORD: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class MarkPlace(StrEnum):
    """Where on a Node a mark stands."""

    ANNOTATION = "annotation"
    LABEL = "label"
    TAINT = "taint"
    CONDITION = "condition"


@dataclass(frozen=True, slots=True)
class Mark:
    """What a tool writes on a Node that it is at. ``means`` says it in words, ``ends`` what has to happen."""

    tool: Tool
    kind: MarkPlace
    key: str
    means: str
    ends: str
    source: str


_KURED = "kubereboot/kured, cmd/kured/main.go"
_NVSENTINEL = "NVIDIA/NVSentinel, fault-quarantine/pkg/common"
_KEP = "KEP-5683, keps/sig-node/5683-lifecycle-conditions"
_SNR = "medik8s/self-node-remediation"

# A mark is there when its key is; a condition when its status is "True".
MARKS: Final = (
    Mark(
        Tool.KURED,
        MarkPlace.ANNOTATION,
        "weave.works/kured-reboot-in-progress",
        "kured is rebooting it",
        "kured takes the annotation away after the reboot",
        f"{_KURED} (with --annotate-nodes)",
    ),
    Mark(
        Tool.NVSENTINEL,
        MarkPlace.ANNOTATION,
        "quarantineHealthEvent",
        "NVSentinel has quarantined it",
        "NVSentinel takes the annotation away when the node is healthy, or once somebody uncordons it",
        _NVSENTINEL,
    ),
    Mark(
        Tool.NVSENTINEL,
        MarkPlace.TAINT,
        "nvsentinel.dgxc.nvidia.com/external-remediation",
        "NVSentinel has handed it to somebody for repair",
        "NVSentinel takes the taint away when its ExternalRemediationRequest is complete",
        "NVIDIA/NVSentinel, janitor, ADR-040",
    ),
    Mark(
        Tool.CLUSTER_API,
        MarkPlace.TAINT,
        "node.cluster.x-k8s.io/outdated-revision",
        "Cluster API is about to replace it",
        "the roll-out of its MachineDeployment replaces the Node, or is taken back",
        "kubernetes-sigs/cluster-api, api/v1beta1/common_types.go",
    ),
    Mark(
        Tool.CLUSTER_AUTOSCALER,
        MarkPlace.TAINT,
        "ToBeDeletedByClusterAutoscaler",
        "the cluster autoscaler is about to delete it",
        "the autoscaler deletes the Node, or takes the taint away",
        "kubernetes/autoscaler, cluster-autoscaler/utils/taints/taints.go",
    ),
    Mark(
        Tool.KARPENTER,
        MarkPlace.TAINT,
        "karpenter.sh/disrupted",
        "Karpenter is about to replace it",
        "Karpenter deletes the Node, or takes the taint away",
        "kubernetes-sigs/karpenter, pkg/apis/v1/taints.go",
    ),
    Mark(
        Tool.KARPENTER,
        MarkPlace.TAINT,
        "karpenter.sh/disruption",
        "Karpenter is about to replace it",
        "Karpenter deletes the Node, or takes the taint away",
        "kubernetes-sigs/karpenter, designs/no-schedule-taint.md (v1beta1)",
    ),
    Mark(
        Tool.MEDIK8S,
        MarkPlace.TAINT,
        "medik8s.io/drain",
        "a NodeMaintenance of Medik8s has taken it out of service",
        "its NodeMaintenance is deleted",
        "medik8s/node-maintenance-operator, internal/controller/taint.go",
    ),
    Mark(
        Tool.MEDIK8S,
        MarkPlace.TAINT,
        "medik8s.io/remediation",
        "Medik8s is repairing it",
        "its remediation is over",
        f"{_SNR}, controllers",
    ),
    Mark(
        Tool.NODE_CONDITIONS,
        MarkPlace.TAINT,
        "node.kubernetes.io/out-of-service",
        "somebody has marked it as shut down",
        "whoever set the taint takes it away",
        "Kubernetes, well-known taints",
    ),
    *(
        Mark(Tool.NODE_CONDITIONS, MarkPlace.CONDITION, key, means, "whoever set the condition ends it", _KEP)
        for key, means in (
            ("GracefulNodeShutdownInProgress", "it is shutting down"),
            ("DrainInProgress", "somebody is draining it"),
            ("Drained", "somebody has drained it"),
            ("MaintenanceInProgress", "somebody is maintaining it"),
        )
    ),
)
# Not a hold: it does not say when. It may even announce this upgrade.
PLANNED: Final = "MaintenancePlanned"

# Labels that make NVSentinel leave a node alone while they are "false" (NVIDIA/NVSentinel): that of its releases since
# 2026 (docs/designs/060-behaviour-profiles.md, docs/configuration/labeler.md), and that of the rules before and beside
# it (docs/runbooks/maintenance-operations.md, docs/configuration/fault-quarantine.md). A release may look at one alone.
OPT_OUT: Final = ("nvsentinel.dgxc.nvidia.com/managed", "k8saas.nvidia.com/ManagedByNVSentinel")
_REPAIRED: Final = "nvsentinel.dgxc.nvidia.com/external-remediation"  # whoever set this taint sets the first label, too
# The MachineConfig of a pool: openshift/machine-config-operator, pkg/controller/common (`rendered-POOL-HASH`).
_RENDERED: Final = re.compile(r"rendered-(?P<pool>[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?)-[0-9a-f]{32}")

# What the machine-config-operator says of a node: openshift/machine-config-operator, pkg/daemon/constants.
MCO_STATE: Final = "machineconfiguration.openshift.io/state"
MCO_PAIRS: Final = (
    ("machineconfiguration.openshift.io/currentConfig", "machineconfiguration.openshift.io/desiredConfig"),
    ("machineconfiguration.openshift.io/currentImage", "machineconfiguration.openshift.io/desiredImage"),
    ("machineconfiguration.openshift.io/lastAppliedDrain", "machineconfiguration.openshift.io/desiredDrain"),
)
_MCO_BROKEN: Final = frozenset({"Degraded", "Unreconcilable"})
_DRY_RUN: Final = "quarantineHealthEventDryRun"  # of NVSentinel: it only says what it would do
_ANNOTATIONS, _TAINTS, _CONDITIONS = (
    {mark.key: mark for mark in MARKS if mark.kind is kind}
    for kind in (MarkPlace.ANNOTATION, MarkPlace.TAINT, MarkPlace.CONDITION)
)
UPGRADE_CONDITION: Final = "GrapnelDriverUpgrade"
_TOLD: Final = frozenset({UPGRADE_CONDITION, PLANNED, *_CONDITIONS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What of a Node the declaration asks for: the values of ``labels``, and the tools that it respects.

    ``maintenances``: NodeMaintenances are requested; ``opts_out``: NVSentinel is kept off nodes meanwhile.
    """

    labels: frozenset[str] = frozenset()
    respect: frozenset[Tool] = field(default_factory=lambda: frozenset(RESPECTED))
    maintenances: bool = False
    opts_out: bool = False


EVERYTHING: Final = Asked()


def why_held(node: Node, respect: frozenset[Tool]) -> str:
    """Return which tool is at a Node, and what ends that; empty where none is."""
    return next(_holds(node, respect), "")


def labels_of(node: Node, keys: frozenset[str]) -> dict[str, str]:
    """Return the labels of a Node that are asked for."""
    labels = node.metadata.labels
    return {key: labels[key] for key in keys if key in labels}


def is_skipped(node: Node) -> bool:
    """Tell whether a Node is labelled as one to be skipped."""
    return node.metadata.labels.get(SKIP) == "true"


def opt_out_of(node: Node) -> tuple[str, ...]:
    """Return the labels that have to be set to keep NVSentinel off a Node: none that others have set."""
    return tuple(key for key in OPT_OUT if key not in node.metadata.labels)


def is_repaired(node: Node) -> bool:
    """Tell whether NVSentinel has handed a Node to people for repair: it keeps itself off it then."""
    return any(taint.key == _REPAIRED for taint in node.spec.taints)


def pool_of(node: Node) -> str:
    """Return the MachineConfigPool that a Node is in, empty for none."""
    found = _RENDERED.fullmatch(node.metadata.annotations.get(MCO_PAIRS[0][1], ""))
    return "" if found is None else found["pool"]


def remarks_of(node: Node) -> tuple[str, ...]:
    """Return what people should know of a Node although it holds nothing."""
    return tuple(
        f"somebody plans a maintenance of it (condition {PLANNED}{_word(condition.reason)})"
        for condition in node.status.conditions
        if condition.type == PLANNED and condition.status == "True" and not condition.reason.startswith(OWN_REASON)
    )


def told_of(node: Node) -> tuple[str, ...]:
    """Return the conditions by which grapnel has said that a Node is being upgraded."""
    return tuple(
        condition.type
        for condition in node.status.conditions
        if condition.type in _TOLD and condition.status == "True" and condition.reason.startswith(OWN_REASON)
    )


def priority_of(node: Node) -> int:
    """Return a Node's priority: 0 where it has none, or something else than a number up to 1000."""
    text = node.metadata.labels.get(PRIORITY)
    if text is None or _NUMBER.fullmatch(text) is None or int(text) > MOST_PRIORITY:
        return 0
    return int(text)


def _holds(node: Node, respect: frozenset[Tool]) -> Iterator[str]:
    if node.metadata.deletion_timestamp is not None:
        yield "it is being deleted: waits until the Node is gone"
    for taint in node.spec.taints:
        mark = _TAINTS.get(taint.key)
        if mark is not None and mark.tool in respect:
            yield _told(mark)
    annotations = node.metadata.annotations
    for key, mark in _ANNOTATIONS.items():
        if key in annotations and mark.tool in respect and annotations.get(_DRY_RUN) is None:
            yield _told(mark)
    if Tool.MACHINE_CONFIG_OPERATOR in respect and MCO_STATE in annotations:
        yield from _machine_config(annotations)
    if Tool.NODE_CONDITIONS in respect:
        for condition in node.status.conditions:
            mark = _CONDITIONS.get(condition.type)
            if mark is not None and condition.status == "True" and _is_of_others(condition, node):
                yield _told(mark, _word(condition.reason))


def _told(mark: Mark, more: str = "") -> str:
    where = f"{mark.kind} {mark.key}{more}"
    return f"{mark.means} ({where}): waits until {mark.ends}"


def _word(reason: str) -> str:
    """Return the reason of a condition; what is not one word of Kubernetes' form is left out."""
    return f", {reason}" if _WORD.fullmatch(reason) else ""


def _is_of_others(condition: Condition, node: Node) -> bool:
    """Tell whether a condition is not grapnel's, and current: the drain of a Node that takes pods was forgotten."""
    if condition.reason.startswith(OWN_REASON):
        return False
    return condition.type != "DrainInProgress" or node.spec.unschedulable


def _machine_config(annotations: Mapping[str, str]) -> Iterator[str]:
    state = annotations[MCO_STATE]
    if state in _MCO_BROKEN:
        yield (
            f"the machine-config-operator could not update it ({MCO_STATE}: {state}): "
            "waits until its machine-config-daemon reports Done"
        )
    elif state != "Done" or any(annotations.get(now) != annotations.get(wanted) for now, wanted in MCO_PAIRS):
        yield (
            f"the machine-config-operator is updating it (annotation {MCO_STATE}): "
            "waits until that is Done, and the current configuration the desired one"
        )


def render_table() -> str:
    """Return what holds a node as a table of Markdown, for the documents."""
    rows = [(mark.tool.value, f"{mark.kind} `{mark.key}`", mark.ends, mark.source) for mark in MARKS]
    rows.append(
        (
            Tool.MACHINE_CONFIG_OPERATOR.value,
            f"annotation `{MCO_STATE}` that is not `Done`, or `current…` that is not `desired…` beside it",
            "the machine-config-daemon reports `Done`",
            "openshift/machine-config-operator, pkg/daemon/constants",
        )
    )
    rows += [
        (
            Tool.KURED.value,
            "its lock for the node, where DaemonSets may be listed",
            "kured takes the lock away",
            "kubereboot/kured, pkg/daemonsetlock",
        ),
        (
            Tool.MAINTENANCE_OPERATOR.value,
            "a NodeMaintenance of NVIDIA's maintenance operator that has begun, where those may be listed",
            "it is deleted",
            "Mellanox/maintenance-operator, api/v1alpha1",
        ),
    ]
    lines = ["| in `respect` | what holds a node | it waits until | source |", "|---|---|---|---|"]
    lines += [f"| `{tool}` | {key} | {ends} | {source} |" for tool, key, ends, source in sorted(rows)]
    return "\n".join(lines) + "\n"
