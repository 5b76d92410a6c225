"""Claims that say how their GPU is shared, on a real Kubernetes: NVIDIA's own, and one that is not served."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from lab import mps
from tests.e2e import test_claims
from tests.e2e.manifests import LOOK, SHELL, STAY, TEST, container, pod
from tests.e2e.stage import DAEMON
from tests.e2e.test_claims import DRIVER, by_claims, claims_one, prepared, template
from tests.e2e.waiting import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.room import Room
    from tests.e2e.stage import LabNode, Stage

pytestmark = pytest.mark.e2e

node = test_claims.node
CONFIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"}
SLICES = {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}}
LIMITS = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
# gpu-test5 of demo/specs/quickstart/v1 of NVIDIA's driver (9593204).
MULTIPLE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "multiple-gpus"},
    "spec": {
        "spec": {
            "devices": {
                "requests": [
                    {"name": "ts-gpu", "exactly": {"deviceClassName": DRIVER}},
                    {"name": "mps-gpu", "exactly": {"deviceClassName": DRIVER}},
                ],
                "config": [
                    {
                        "requests": ["ts-gpu"],
                        "opaque": {"driver": DRIVER, "parameters": {**CONFIG, "sharing": SLICES}},
                    },
                    {
                        "requests": ["mps-gpu"],
                        "opaque": {
                            "driver": DRIVER,
                            "parameters": {**CONFIG, "sharing": {"strategy": "MPS", "mpsConfig": LIMITS}},
                        },
                    },
                ],
            }
        }
    },
}
# Has two thirds of the ceiling, asks for as much again, and for a little.
CLIENT = f"{LOOK}\nenv | grep ^CUDA_\necho looked\nexec gpu-test allocate 7000 7000 3000\n"


@contextmanager
def time_slices(node: LabNode) -> Iterator[Path]:
    """Have nvidia-smi on a node write down which time slices it is asked for: the lab's NVML knows of none."""
    program = node.node.root / "usr/bin/nvidia-smi"
    saved, asked = program.with_name("nvidia-smi.saved"), node.node.root / "run/time-slices"
    program.rename(saved)
    program.write_text('#!/bin/sh\necho "$3 $5" >> /run/time-slices\n')
    program.chmod(0o755)
    asked.write_text("")
    try:
        yield asked
    finally:
        saved.rename(program)


def test_nvidias_claim_with_time_slices_and_mps_runs_unchanged(room: Room, stage: Stage, node: LabNode) -> None:
    mps.install_programs(node.node.root)
    with time_slices(node) as asked, by_claims(stage, node):
        made = [
            {**container(name, script, image=image), "resources": {"claims": [{"name": "shared-gpus", "request": gpu}]}}
            for name, script, image, gpu in (
                ("ts-ctr0", STAY, SHELL, "ts-gpu"),
                ("ts-ctr1", STAY, SHELL, "ts-gpu"),
                ("mps-ctr0", CLIENT, TEST, "mps-gpu"),
                ("mps-ctr1", CLIENT, TEST, "mps-gpu"),
            )
        ]
        pod0 = pod("pod0", *made, node=node.name, runtime_class="")
        pod0["spec"]["resourceClaims"] = [{"name": "shared-gpus", "resourceClaimTemplateName": "multiple-gpus"}]
        room.start(MULTIPLE, pod0)
        room.wait_running(["pod0"])
        (sliced,) = room.sight("pod0", "ts-ctr0").uuids
        assert room.sight("pod0", "ts-ctr1").uuids == {sliced}
        assert asked.read_text() == f"{sliced} 3\n"
        logs = [allocated(room, each) for each in ("mps-ctr0", "mps-ctr1")]
        (shared,) = room.sight("pod0", "mps-ctr0").uuids | room.sight("pod0", "mps-ctr1").uuids
        assert shared != sliced
        for log in logs:
            assert f"CUDA_MPS_PIPE_DIRECTORY=/run/grapnel/mps/{shared}/pipe" in log
            assert log[-4:-1] == ["7000 0", "7000 2", "3000 0"]  # CUDA's out of memory
        taken = node.claim_registrations()
        started = node.started(f"grapnel-mps-{shared}.service")
        node.unit("restart", DAEMON)
        wait_for("the kubelet has taken the daemon", lambda: node.claim_registrations() > taken)
        assert node.started(f"grapnel-mps-{shared}.service") == started
        room.clear()
        wait_for("every claim is given back", lambda: prepared(node) == 0, evidence=room.evidence)
        wait_for("its time slices are the driver's own", lambda: asked.read_text().endswith(f"{sliced} 0\n"))
        wait_for("its server has ended", lambda: node.state(f"grapnel-mps-{shared}.service") == "inactive")
    mps.remove_programs(node.node.root)


def allocated(room: Room, name: str) -> list[str]:
    """Return what a client of MPS says, once it has tried to get memory."""

    def log() -> list[str]:
        lines = room.api.log(room.name, "pod0", name).splitlines()
        return lines if lines and lines[-1] == "allocated" else []

    found: list[str] = wait_for(f"{name} has allocated", log, evidence=room.evidence)
    return found


def test_a_config_that_is_not_served_is_told_in_the_pods_events(room: Room, stage: Stage, node: LabNode) -> None:
    with by_claims(stage, node):
        wrong = template()
        opaque = {"driver": DRIVER, "parameters": {**CONFIG, "sharing": {**SLICES, "unexpectedField": "foo"}}}
        wrong["spec"]["spec"]["devices"]["config"] = [{"requests": ["gpu"], "opaque": opaque}]
        room.start(wrong, claims_one("wrong", node))
        # Kubernetes 1.37 leaves out of an allocation which requests a config is for, where it is for all of them.
        words = "is not served: sharing.unexpectedField is not known"
        wait_for("the pod's events have the reason", lambda: words in room.evidence(), evidence=room.evidence)
        assert prepared(node) == 0
        room.clear()
