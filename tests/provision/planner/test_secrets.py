"""What not everybody on a node may read stays so: in the files that are made from it, and in what people are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest

from provision.apply.model import Assessment
from provision.declaration.fleet.facts.node import Engine
from provision.planning.engines import crio, docker
from provision.planning.engines.containerd.imports import DROP_IN_PATH, MAIN_PATH
from provision.planning.node_plan import NodePlan, Role, role_variables, shown_plan
from provision.report.documents.plans import plans_document
from tests.provision.samples import (
    DEBIAN_CONFIG,
    RUNNING,
    configured,
    edit_file,
    edit_file_state,
    make_facts,
    make_file,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
)

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec
    from provision.planning.node_plan import FileContent

SECRET = "hunter2hunter2"  # noqa: S105 - what must not be seen
SITE = "/etc/containerd/conf.d/10-site.toml"
AUTH = f'[plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example".auth]\npassword = "{SECRET}"\n'
WITH_PASSWORD = f"{DEBIAN_CONFIG}\n{AUTH}"
IMPORTS = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
OTHERS = {"driver": {"enabled": False}, "plugin": {"enabled": False}}
CRIO = make_stack(**OTHERS, runtime={"engine": "crio"})
DOCKER = make_stack(**OTHERS, runtime={"engine": "docker", "entitlement": "env"})


def with_files(engine: str, version: str, **files: tuple[str, str]) -> NodeFacts:
    """Return a node with an engine and files: text and mode by path."""
    states = {path: make_file(text, mode) for path, (text, mode) in files.items()}
    facts = make_facts(engines={engine: Engine(binary=f"/usr/bin/{engine}", version=version)}, files=states)
    return replace(facts, services={f"{engine}.service": RUNNING})


def with_containerd(**files: tuple[str, str]) -> NodeFacts:
    return with_files("containerd", "1.7.24", **files)


def file(result: NodePlan, path: str) -> FileContent:
    assert result.problems == ()
    assert result.roles.runtime is not None
    (found,) = (each for each in result.roles.runtime.runtime_files if each.path == path)
    return found


MODES = {
    "containerd: the main file's": (
        with_containerd(**{MAIN_PATH: (WITH_PASSWORD, "0600")}),
        make_stack(),
        {MAIN_PATH: "0600", DROP_IN_PATH: "0600"},
    ),
    "containerd: an imported drop-in's": (
        with_containerd(**{MAIN_PATH: (f"{IMPORTS}{DEBIAN_CONFIG}", "0644"), SITE: (f"version = 2\n{AUTH}", "0640")}),
        make_stack(),
        {DROP_IN_PATH: "0640"},
    ),
    "containerd: what all of them allow": (
        with_containerd(**{MAIN_PATH: (f"{IMPORTS}{DEBIAN_CONFIG}", "0604"), SITE: (f"version = 2\n{AUTH}", "0640")}),
        make_stack(),
        {DROP_IN_PATH: "0600"},
    ),
    "containerd: never more than the usual one": (
        with_containerd(**{MAIN_PATH: (DEBIAN_CONFIG, "0777")}),
        make_stack(),
        {DROP_IN_PATH: "0644"},
    ),
    "CRI-O: a drop-in's": (
        with_files(
            "crio",
            "1.36.3",
            **{
                f"{crio.DROP_IN_FOLDER}/10-a.conf": ('[crio.runtime.runtimes.crun]\nruntime_path = "/x/crun"\n', "0600")
            },
        ),
        CRIO,
        {crio.DROP_IN_PATH: "0600"},
    ),
    "Docker: the file's own": (
        with_files("docker", "26.1.5", **{docker.MAIN_PATH: ('{"proxies": {}}', "0600")}),
        DOCKER,
        {docker.MAIN_PATH: "0600"},
    ),
}


@pytest.mark.parametrize(("facts", "stack", "modes"), MODES.values(), ids=MODES)
def test_a_file_that_is_made_from_others_has_their_strictest_mode(
    facts: NodeFacts, stack: StackSpec, modes: dict[str, str]
) -> None:
    result = plan(facts, stack)

    assert {path: file(result, path).mode for path in modes} == modes
    assert plan(simulate_apply(facts, result), stack).is_empty


def test_a_drop_in_that_was_written_too_open_is_put_right_without_a_restart() -> None:
    facts = edit_file_state(edit_file(configured(), MAIN_PATH, f"{IMPORTS}{WITH_PASSWORD}"), MAIN_PATH, mode="0600")
    facts = simulate_apply(facts, plan(facts))
    assert plan(facts).is_empty

    result = plan(edit_file_state(facts, DROP_IN_PATH, mode="0644"))

    assert steps(result.items) == [("write", DROP_IN_PATH)]
    assert result.items[0].reason == f"{DROP_IN_PATH} has mode 0644, not 0600"
    assert file(result, DROP_IN_PATH).mode == "0600"


def test_a_plan_is_shown_without_secret_texts_and_carried_out_with_them() -> None:
    result = plan(with_containerd(**{MAIN_PATH: (WITH_PASSWORD, "0600")}))
    assessment = Assessment(with_containerd(), result)

    shown = json.loads(plans_document({"n1": assessment}))["plans"][0]

    assert SECRET not in json.dumps(shown)
    assert SECRET in json.dumps(role_variables(result, Role.RUNTIME))
    files = {each["path"]: each for each in shown["roles"]["runtime"]["runtime_files"]}
    assert files[DROP_IN_PATH] == {"path": DROP_IN_PATH, "content": "", "mode": "0600", "withheld": True}
    assert files["/etc/grapnel/hook.json"]["content"]
    assert not files["/etc/grapnel/hook.json"]["withheld"]
    assert msgspec.json.decode(json.dumps(shown), type=NodePlan) == shown_plan(result)
    assert shown["items"] == json.loads(msgspec.json.encode(result))["items"]


@pytest.mark.parametrize(
    "broken", ["version = 2\n[plugins\n", f'version = 2\nx = "{SECRET}" "{SECRET}"\n', "version = 1\n"]
)
def test_no_message_quotes_a_secret_file(broken: str) -> None:
    result = plan(with_containerd(**{MAIN_PATH: (f'{broken}# "{SECRET}"\n', "0600")}))

    assert [each.code for each in result.problems] == ["engine-config"]
    assert SECRET not in msgspec.json.encode(result).decode()


PROBLEMS = {
    "an invalid mode": ({MAIN_PATH: {"mode": "rwx"}}, f"{MAIN_PATH} has mode rwx, which is not four octal digits"),
    "a drop-in that is no text": ({SITE: {"content": None}}, f"{SITE} is not text, or is too large"),
}


@pytest.mark.parametrize(("changes", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_an_odd_file_is_a_problem_of_its_node(changes: dict[str, dict[str, object]], message: str) -> None:
    facts = with_containerd(**{MAIN_PATH: (f"{IMPORTS}{DEBIAN_CONFIG}", "0644"), SITE: ("", "0644")})
    for path, change in changes.items():
        facts = edit_file_state(facts, path, **change)

    assert [each.message for each in plan(facts).problems] == [message]


def test_rubbish_that_containerd_does_not_read_is_no_problem() -> None:
    path = "/etc/containerd/conf.d/photo.jpg"
    facts = edit_file_state(edit_file(configured(), path, ""), path, content=None)

    assert plan(facts).is_empty


def test_rubbish_in_the_place_of_our_own_file_is_replaced() -> None:
    facts = edit_file_state(configured(), DROP_IN_PATH, content=None)

    assert steps(plan(facts).items) == [("write", DROP_IN_PATH), ("restart", "containerd.service")]
