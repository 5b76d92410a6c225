"""Imports of containerd's configuration are followed, so that the planner sees whatever containerd reads."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.containerd_imports import (
    read_base_specs,
    read_imports,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import CONTAINERD
from ansible_collections.grapnel.node.plugins.module_utils.files.watched import read_files

from provision.planning.planner.plan import plan_node
from tests.playbooks.test_migrate_pages import look
from tests.provision.samples import PAYLOAD, make_stack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.playbooks.fakes import Machine

TEXTS = {
    "one line": ('imports = ["/opt/a.toml"]\n', {"/opt/a.toml": ["/opt/a.toml"]}),
    "a file that is not there": ("imports = ['/opt/missing.toml']\n", {"/opt/missing.toml": []}),
    "several lines": (
        'version = 2\n  imports = [\n  "/opt/a.toml", # why\n  "more/*.toml",\n]\n',
        {"/opt/a.toml": ["/opt/a.toml"], "/etc/containerd/more/*.toml": ["/etc/containerd/more/b.toml"]},
    ),
    "a star in a folder": ('imports = ["/o*/a.toml"]\n', {"/o*/a.toml": ["/opt/a.toml"]}),
    "a comment": ('# imports = ["/opt/a.toml"]\n', {}),
    "another key": ('my_imports = ["/opt/a.toml"]\n', {}),
    "no configuration": ("", {}),
    "a pattern without a match": ('imports = ["/srv/*.toml"]\n', {"/srv/*.toml": []}),
}


@pytest.mark.parametrize(("text", "found"), TEXTS.values(), ids=TEXTS)
def test_imports_are_told_with_what_they_lead_to(text: str, found: dict[str, list[str]], machine: Machine) -> None:
    machine.write(CONTAINERD.main, text)
    machine.write("/opt/a.toml")
    machine.write("/etc/containerd/more/b.toml")
    machine.write("/etc/containerd/more/README")

    assert read_imports(machine.host) == found


def test_imports_of_imported_files_are_followed_and_their_texts_are_told(machine: Machine) -> None:
    machine.write(CONTAINERD.main, 'imports = ["/opt/a.toml"]\n')
    machine.write("/opt/a.toml", 'imports = ["b.conf", "/etc/containerd/config.toml"]\n')
    machine.write("/opt/b.conf", "version = 2\n")

    assert read_imports(machine.host) == {
        "/opt/a.toml": ["/opt/a.toml"],
        "/opt/b.conf": ["/opt/b.conf"],
        CONTAINERD.main: [CONTAINERD.main],
    }
    assert read_files(machine.host, [])["/opt/b.conf"]["content"] == "version = 2\n"


def test_of_very_many_files_the_first_are_told(machine: Machine) -> None:
    machine.write(CONTAINERD.main, 'imports = ["/opt/*.toml"]\n')
    for number in range(100):
        machine.write(f"/opt/{number:03}.toml")

    assert read_imports(machine.host) == {"/opt/*.toml": [f"/opt/{number:03}.toml" for number in range(32)]}


RUNC = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\n'
SPEC = "/etc/containerd/cri-base.json"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(f'{RUNC}base_runtime_spec = "{SPEC}"\n', [SPEC], id="a setting"),
        pytest.param(f"runc = {{'base_runtime_spec'='{SPEC}'}}\n", [SPEC], id="in an inline table"),
        pytest.param(f'# base_runtime_spec = "{SPEC}"\n', [], id="a comment"),
        pytest.param('base_runtime_spec = "//etc/../proc/kmsg"\n', [], id="what is read without end"),
        pytest.param('base_runtime_spec = "cri-base.json"\n', [], id="a relative path"),
        pytest.param('base_runtime_spec = "/etc/\x1b[2J"\n', [], id="a sequence for a terminal"),
        pytest.param(f'base_runtime_spec = "/{"a" * 5000}"\n', [], id="a path that is none"),
        pytest.param(
            "".join(f'base_runtime_spec = "/{number}"\n' for number in range(100)),
            [f"/{number}" for number in range(8)],
            id="very many",
        ),
    ],
)
def test_base_specifications_that_are_named_are_found(text: str, found: list[str], machine: Machine) -> None:
    machine.write(CONTAINERD.main, text)

    assert read_base_specs(machine.host, [CONTAINERD.main, "/missing"]) == found


@pytest.mark.parametrize("place", [CONTAINERD.main, "/etc/containerd/conf.d/10-site.toml", "/opt/a.toml"])
def test_a_base_specification_is_read_wherever_it_is_named(place: str, machine: Machine) -> None:
    machine.write(CONTAINERD.main, 'imports = ["/opt/a.toml"]\n')
    machine.write("/opt/a.toml", "")
    machine.write(place, f'imports = ["/opt/a.toml"]\n{RUNC}base_runtime_spec = "{SPEC}"\n')
    machine.write(SPEC, "{}")

    assert read_files(machine.host, [])[SPEC]["content"] == "{}"


def make_link(place: Path) -> None:
    place.with_suffix(".other").write_text("{}")
    place.symlink_to(place.with_suffix(".other"))


MADE: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda _: None, "is not there, or a link or pipe in place of a file"),
    "a link": (make_link, "is not there, or a link or pipe in place of a file"),
    "a pipe": (os.mkfifo, "is not there, or a link or pipe in place of a file"),
    "a folder": (lambda place: place.mkdir(), "is not there, or a link or pipe in place of a file"),
    "a huge file": (lambda place: place.write_text(" " * 300_000), "is too large, or no text"),
    "no text": (lambda place: place.write_bytes(b"\xff{}"), "is too large, or no text"),
}


@pytest.mark.parametrize(("make", "words"), MADE.values(), ids=MADE)
def test_a_base_specification_that_cannot_be_read_is_told_while_planning(
    make: Callable[[Path], object], words: str, tmp_path: Path
) -> None:
    main = tmp_path / CONTAINERD.main.lstrip("/")
    main.parent.mkdir(parents=True)
    main.write_text(f'{RUNC}base_runtime_spec = "{SPEC}"\n')
    make(tmp_path / SPEC.lstrip("/"))

    planned = plan_node(look(tmp_path, ("containerd", "1.7.24")), make_stack(driver={"enabled": False}), PAYLOAD)

    (problem,) = planned.problems
    assert (problem.code, problem.message) == (
        "engine-config",
        f"{SPEC}, the base specification of the default runtime, {words}",
    )
    assert problem.hint is not None
    assert "base_runtime_spec" in problem.hint
