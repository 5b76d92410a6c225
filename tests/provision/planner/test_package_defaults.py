"""An engine that is not there yet is configured in the pass that installs it, if its package is known."""

from __future__ import annotations

import pytest

from provision.declaration.fleet.facts.node import AvailablePackage
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import DROP_IN_PATH, MAIN_PATH
from provision.planning.engines.docker import GPUS_PATH
from provision.planning.planner.runtime import runtime
from provision.planning.render.declared import digest_of
from tests.provision.samples import (
    DEBIAN_CONFIG,
    edit_file,
    make_facts,
    make_stack,
    plan,
    replace,
    simulate_apply,
    steps,
    text_of,
)

SITE_CONFIG = 'version = 2\n\n[plugins."io.containerd.grpc.v1.cri"]\n  sandbox_image = "registry.example/pause:1"\n'


def test_what_is_expected_is_what_is_planned_once_the_engine_is_there() -> None:
    facts = make_facts()
    first = plan(facts)
    there = edit_file(simulate_apply(facts, first), MAIN_PATH, DEBIAN_CONFIG)  # as the package brings it

    assert not any(item.deferred for item in first.items)
    assert plan(simulate_apply(facts, first)).is_empty
    assert first.roles.runtime is not None
    written = {file.path: file for file in first.roles.runtime.runtime_files}
    again = plan(edit_file(there, DROP_IN_PATH, None)).roles.runtime
    assert again is not None
    assert {file.path: file for file in again.runtime_files} == {
        path: written[path] for path in (MAIN_PATH, DROP_IN_PATH)
    }


def test_the_node_is_told_what_the_files_were_made_from() -> None:
    runtime = plan(make_facts()).roles.runtime

    assert runtime is not None
    made_from = {MAIN_PATH: digest_of(DEBIAN_CONFIG)}
    assert runtime.runtime_preconditions == dict.fromkeys((BASE_SPEC_PATH, MAIN_PATH, DROP_IN_PATH), made_from)


def test_a_file_that_the_site_wrote_beforehand_stays() -> None:
    """Packages do not replace it, and it is what our files are made from."""
    facts = edit_file(make_facts(), MAIN_PATH, SITE_CONFIG)
    first = plan(facts)

    assert first.roles.runtime is not None
    assert first.roles.runtime.runtime_preconditions[DROP_IN_PATH] == {MAIN_PATH: digest_of(SITE_CONFIG)}
    after = simulate_apply(facts, first)
    assert "registry.example" in text_of(after, MAIN_PATH)
    assert plan(after).is_empty


def test_docker_s_package_brings_no_file() -> None:
    facts = make_facts(available={"docker.io": (AvailablePackage(version="26.1.5+dfsg1-9+b9", source="docker.io"),)})
    runtime = plan(facts, make_stack(driver={"enabled": False}, runtime={"engine": "docker"})).roles.runtime

    assert runtime is not None
    paths = ("/etc/docker/daemon.json", GPUS_PATH)
    assert runtime.runtime_preconditions == {path: {"/etc/docker/daemon.json": ""} for path in paths}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"id": "amzn", "version_id": "2023"}, id="another distribution's package"),
        pytest.param({}, id="a drop-in of ours that somebody may have edited"),
    ],
)
def test_what_is_not_known_follows_in_the_next_pass(change: dict[str, str]) -> None:
    bare = make_facts()
    facts = replace(bare, node=replace(bare.node, os=replace(bare.node.os, **change)))
    if not change:
        facts = edit_file(facts, DROP_IN_PATH, "version = 2\n")
    first = plan(facts, make_stack(driver={"enabled": False}))

    assert [item.target for item in first.items if item.deferred] == [BASE_SPEC_PATH, MAIN_PATH, DROP_IN_PATH]
    assert first.roles.runtime is not None
    assert first.roles.runtime.runtime_preconditions == {}
    assert not {MAIN_PATH, DROP_IN_PATH} & {file.path for file in first.roles.runtime.runtime_files}


def test_the_second_pass_configures_an_engine_whose_package_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "expect_files", lambda *_: None)
    facts = make_facts()

    second = plan(simulate_apply(facts, plan(facts)))

    assert steps(second.items) == [
        *(("write", path) for path in (BASE_SPEC_PATH, MAIN_PATH, DROP_IN_PATH)),
        ("restart", "containerd.service"),
    ]
    assert second.roles.driver is None
    assert second.roles.node_daemon is None


def test_a_configuration_that_cannot_be_read_is_told_once_the_engine_is_there() -> None:
    facts = edit_file(make_facts(), MAIN_PATH, "version = [\n")
    first = plan(facts)

    assert first.problems == ()
    assert [item.target for item in first.items if item.deferred] == [BASE_SPEC_PATH, MAIN_PATH, DROP_IN_PATH]
