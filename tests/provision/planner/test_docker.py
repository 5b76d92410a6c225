"""Docker and Podman as a node's engine: a file and a reload, or a file alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision.declaration.fleet.facts.node import AvailablePackage, Engine, NodeFacts
from provision.planning.engines.docker import GPUS_PATH, MAIN_PATH, render_gpus_program
from provision.planning.engines.podman import HOOK_FILE_PATH as PODMAN_HOOK_FILE_PATH
from provision.planning.node_plan import Action, Disruption
from provision.planning.planner.part import RESTART_MARKS
from provision.planning.render.hook_config import CDI_PATH, HOOK_CONFIG_PATH
from tests.provision.samples import (
    PAYLOAD,
    RUNNING,
    edit_file,
    edit_service,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
)

if TYPE_CHECKING:
    from provision.declaration.spec.model import StackSpec

UNIT = "docker.service"
NO_KUBELET: dict[str, dict[str, object]] = {"driver": {"enabled": False}, "plugin": {"enabled": False}}
DOCKER = make_stack(**NO_KUBELET, runtime={"engine": "docker", "entitlement": "env"})
PODMAN = make_stack(**NO_KUBELET, runtime={"engine": "podman", "entitlement": "env"})


def with_docker(version: str = "26.1.5", *, takes_gpus: bool | None = True) -> NodeFacts:
    """Return a node on which Docker runs, and nothing of grapnel is."""
    engine = Engine(binary="/usr/sbin/dockerd", version=version, takes_gpus=takes_gpus)
    return replace(make_facts(engines={"docker": engine}), services={UNIT: RUNNING})


def configured() -> NodeFacts:
    """Return that node after everything was carried out."""
    facts = simulate_apply(with_docker(), plan(with_docker(), DOCKER))
    assert plan(facts, DOCKER).is_empty
    return facts


def test_docker_takes_its_runtime_in_without_a_restart() -> None:
    result = plan(with_docker(), DOCKER)

    assert steps(result.items) == [
        ("deploy", "hook"),
        ("write", HOOK_CONFIG_PATH),
        ("write", GPUS_PATH),
        ("write", MAIN_PATH),
        ("reload", UNIT),
    ]
    assert not result.problems
    variables = result.roles.runtime
    assert variables is not None
    assert (variables.runtime_service, variables.runtime_restart, variables.runtime_reload) == (UNIT, True, True)
    assert variables.runtime_hook_archive == PAYLOAD.hook.path
    assert result.disruption is Disruption.NONE


@pytest.mark.parametrize(("stack", "path"), [(DOCKER, CDI_PATH), (PODMAN, CDI_PATH), (make_stack(), None)])
def test_the_hook_keeps_a_cdi_file_where_people_name_devices(stack: StackSpec, path: str | None) -> None:
    name = stack.runtime.engine.value
    facts = make_facts(engines={name: Engine(binary=f"/usr/bin/{name}", version="26.1.5")})
    runtime = plan(replace(facts, services={f"{name}.service": RUNNING}), stack).roles.runtime
    assert runtime is not None
    texts = {file.path: file.content for file in runtime.runtime_files}
    assert json.loads(texts[HOOK_CONFIG_PATH]).get("cdi") == path


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param(None, [("write", MAIN_PATH), ("reload", UNIT)], id="the file is gone"),
        pytest.param('{"debug": true}', [("write", MAIN_PATH), ("reload", UNIT)], id="our runtime is gone"),
        pytest.param('{"debug": 1, "runtimes": {', [], id="it is no JSON"),
    ],
)
def test_drift_is_put_right_or_told(content: str | None, expected: list[tuple[str, str]]) -> None:
    result = plan(edit_file(configured(), MAIN_PATH, content), DOCKER)

    assert steps(result.items) == expected
    assert [problem.code for problem in result.problems] == ([] if expected else ["engine-config"])


def test_a_key_that_somebody_adds_is_no_drift() -> None:
    facts = configured()
    text = facts.content(MAIN_PATH)
    assert text is not None

    assert plan(edit_file(facts, MAIN_PATH, json.dumps({**json.loads(text), "debug": True})), DOCKER).is_empty


def test_a_reload_that_a_killed_apply_left_due_is_made_up_for() -> None:
    facts = edit_file(configured(), f"{RESTART_MARKS}/{UNIT}", "")

    assert steps(plan(facts, DOCKER).items) == [("reload", UNIT)]


def test_a_docker_that_does_not_run_is_started_with_its_files() -> None:
    facts = edit_service(with_docker(), UNIT, active="inactive", enabled="disabled")

    assert steps(plan(facts, DOCKER).items)[-3:] == [("write", MAIN_PATH), ("enable", UNIT), ("start", UNIT)]


def test_a_node_without_docker_gets_the_distributions_first() -> None:
    version = AvailablePackage(version="26.1.5+dfsg1-9+b9", source="docker.io")
    facts = make_facts(available={"docker.io": (version,)})

    result = plan(facts, DOCKER)
    assert steps(result.items) == [
        ("install", "docker.io"),
        ("deploy", "hook"),
        ("write", HOOK_CONFIG_PATH),
        ("write", GPUS_PATH),
        ("write", MAIN_PATH),
        ("restart", UNIT),  # nothing runs in it yet, and it looks for what --gpus starts only when it starts
    ]
    assert result.roles.runtime is not None
    assert not result.roles.runtime.runtime_reload
    assert plan(simulate_apply(facts, result), DOCKER).is_empty


@pytest.mark.parametrize("folder", ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"])
def test_a_leftover_hook_file_of_nvidias_is_a_problem_for_podman(folder: str) -> None:
    facts = make_facts(engines={"podman": Engine(binary="/usr/bin/podman", version="5.4.2")})
    path = f"{folder}/oci-nvidia-hook.json"
    text = '{"hook": {"path": "/usr/bin/nvidia-container-runtime-hook"}}'

    (problem,) = plan(edit_file(facts, path, text), PODMAN).problems

    assert problem.message.startswith(f"{path}: starts NVIDIA's hook for containers of Podman")
    assert plan(edit_file(configured(), path, text), DOCKER).is_empty  # Docker reads no hook files


def test_podman_needs_two_files_and_no_service() -> None:
    facts = make_facts(engines={"podman": Engine(binary="/usr/bin/podman", version="5.4.2")})

    result = plan(facts, PODMAN)

    assert steps(result.items) == [("deploy", "hook"), ("write", HOOK_CONFIG_PATH), ("write", PODMAN_HOOK_FILE_PATH)]
    variables = result.roles.runtime
    assert variables is not None
    assert (variables.runtime_service, variables.runtime_restart, variables.runtime_reload) == ("", False, False)
    assert plan(simulate_apply(facts, result), PODMAN).is_empty


def test_a_docker_that_started_before_is_told_of_until_its_next_start() -> None:
    facts = with_docker(takes_gpus=False)

    first = plan(facts, DOCKER)
    facts = simulate_apply(facts, first)
    again = plan(facts, DOCKER)

    assert again.is_empty
    for result in (first, again):
        (warning,) = result.warnings
        assert warning.code == "docker-gpus-late"
        assert "works from Docker's next start on" in warning.message
        assert "--runtime nvidia -e NVIDIA_VISIBLE_DEVICES=0" in warning.hint
        assert "--device nvidia.com/gpu=0" in warning.hint
    assert not plan(replace(facts, engines=with_docker().engines), DOCKER).warnings
    assert not plan(edit_service(facts, UNIT, active="inactive"), DOCKER).warnings


def test_a_new_program_for_gpus_reloads_nothing() -> None:
    facts = edit_file(configured(), GPUS_PATH, render_gpus_program() + "# of an earlier release\n")

    (item,) = plan(facts, DOCKER).items

    assert (item.action, item.target, item.disruption) == (Action.WRITE, GPUS_PATH, Disruption.NONE)


def test_somebody_elses_program_of_that_name_stays_and_is_told_of() -> None:
    facts = edit_file(with_docker(takes_gpus=False), GPUS_PATH, '#!/bin/sh\nexec /opt/toolkit/hook "$@"\n')

    result = plan(facts, DOCKER)

    assert GPUS_PATH not in {item.target for item in result.items}
    assert result.roles.runtime is not None
    assert GPUS_PATH not in {file.path for file in result.roles.runtime.runtime_files}
    (warning,) = result.warnings
    assert warning.message == f"{GPUS_PATH} is not grapnel's, and decides what docker run --gpus does"


def test_a_docker_that_has_not_taken_its_file_in_is_told_the_reload() -> None:
    facts = edit_service(configured(), UNIT, newer_files=(MAIN_PATH,))
    found = plan(facts, DOCKER)
    assert found.is_empty
    assert [each.hint for each in found.warnings] == ["on the node: `systemctl reload docker.service`"]
