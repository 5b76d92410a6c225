"""A real API server with the custom resource: what it takes, what it refuses, and what people see."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab.machine.errors import CommandError
from provision.controller.stacks.decode import decode_stack
from provision.controller.stacks.model import Unreadable
from provision.declaration.spec.validate import tidy
from tests.provision.stacks.samples import document, samples

if TYPE_CHECKING:
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional
ELSEWHERE = (
    "operator's machine",
    "has no place in a cluster",
    "of the controller's pod",
    "`grapnel apply`",
    "inventory",
)
APPLY = ("apply", "--server-side", "--field-manager=people", "-f", "-")


def test_the_schema_is_taken_without_a_remark(stage: Stage) -> None:
    crd = stage.get("customresourcedefinition", "gpustacks.grapnel.dev")
    conditions = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
    assert conditions["Established"] == "True"
    assert "NonStructuralSchema" not in conditions


@pytest.mark.parametrize(("name", "sample"), [pytest.param(name, each, id=name) for name, each in samples("good")])
def test_good_declarations_are_taken_and_stay_as_they_were_applied(
    stage: Stage, name: str, sample: dict[str, Any]
) -> None:
    given = document(name, tidy(sample["spec"]))  # null is what a file may say for a default, and an API cannot
    if "driver" not in sample["spec"]:
        given["spec"].pop("driver")
    local = decode_stack(given)
    if isinstance(local, Unreadable):  # what only an operator's machine has
        assert all(any(word in each for word in ELSEWHERE) for each in local.reasons), local
        return
    first, again = (json.loads(stage.kubectl(*APPLY, "-o", "json", data=given)) for _time in range(2))
    assert again["metadata"]["generation"] == first["metadata"]["generation"]
    assert decode_stack(again).spec == local.spec  # type: ignore[union-attr] # a Stack, as the one that was given


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"driver": {}}, "version or branch is required while the driver is enabled"),
        ({"driver": {"version": "550.163.01", "branch": "550"}}, "cannot stand beside one another"),
        ({"driver": {"version": "550"}}, "spec.driver.version"),
        ({"driver": {"version": "550.163.01", "source": "bundle"}}, "operator's machine"),
        ({"mig": {"layout": "x", "configFile": "a.yaml"}}, "write the layouts into config"),
        ({"scheduler": {"kind": "slurm"}}, "are upgraded by `grapnel apply`"),
        ({"rollout": {"waves": [{"groups": ["canary"]}]}}, "no groups of an inventory"),
        ({"runtime": {"engine": "podman"}}, "podman does not work with a kubelet"),
        ({"runtime": {"engine": "containerdd"}}, "Unsupported value"),
        ({"motor": {}}, "motor"),
    ],
)
def test_the_server_itself_says_why_it_refuses(stage: Stage, spec: dict[str, Any], reason: str) -> None:
    with pytest.raises(CommandError) as refused:
        stage.kubectl("create", "--dry-run=server", "--validate=strict", "-f", "-", data=document("refused", spec))
    assert reason in refused.value.hint


def test_a_stack_without_a_selector_is_refused(stage: Stage) -> None:
    given = document("refused")
    del given["spec"]["nodeSelector"]
    with pytest.raises(CommandError) as refused:
        stage.kubectl("create", "-f", "-", data=given)
    assert "spec.nodeSelector: Required value" in refused.value.hint


def test_people_see_how_a_stack_stands(stage: Stage) -> None:
    stage.kubectl(*APPLY, data=document("seen"))
    status = {
        "state": "Changing",
        "progress": "37/40",
        "driver": "550.163.01",
        "message": "37 of 40 nodes as declared",
        "nodes": {"total": 40, "asDeclared": 37, "changing": 2, "waiting": 1, "failed": 0, "claimedTwice": 0},
    }
    patch = json.dumps({"status": status})
    stage.kubectl("patch", "gpustack", "seen", "--subresource=status", "--type=merge", "-p", patch)
    head, row = stage.kubectl("get", "gst", "seen").splitlines()
    assert head.split() == ["NAME", "STATE", "AS", "DECLARED", "DRIVER", "AGE"]
    assert row.split()[:4] == ["seen", "Changing", "37/40", "550.163.01"]
    head, row = stage.kubectl("get", "gst", "seen", "-o", "wide").splitlines()
    assert "37 of 40 nodes as declared" in row
    stage.kubectl(*APPLY, data=document("seen", {"rollout": {"maxParallel": 3}}))
    assert stage.get("gpustack", "seen")["status"]["progress"] == "37/40"
    stage.kubectl("delete", "gpustack", "seen")
