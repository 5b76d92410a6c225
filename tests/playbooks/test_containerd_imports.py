"""Imports of containerd's configuration are followed, so that the planner sees whatever containerd reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.containerd_imports import MAIN, read_imports
from ansible_collections.grapnel.node.plugins.module_utils.files.watched import read_files

if TYPE_CHECKING:
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
    machine.write(MAIN, text)
    machine.write("/opt/a.toml")
    machine.write("/etc/containerd/more/b.toml")
    machine.write("/etc/containerd/more/README")

    assert read_imports(machine.host) == found


def test_imports_of_imported_files_are_followed_and_their_texts_are_told(machine: Machine) -> None:
    machine.write(MAIN, 'imports = ["/opt/a.toml"]\n')
    machine.write("/opt/a.toml", 'imports = ["b.conf", "/etc/containerd/config.toml"]\n')
    machine.write("/opt/b.conf", "version = 2\n")

    assert read_imports(machine.host) == {
        "/opt/a.toml": ["/opt/a.toml"],
        "/opt/b.conf": ["/opt/b.conf"],
        MAIN: [MAIN],
    }
    assert read_files(machine.host, [])["/opt/b.conf"]["content"] == "version = 2\n"


def test_of_very_many_files_the_first_are_told(machine: Machine) -> None:
    machine.write(MAIN, 'imports = ["/opt/*.toml"]\n')
    for number in range(100):
        machine.write(f"/opt/{number:03}.toml")

    assert read_imports(machine.host) == {"/opt/*.toml": [f"/opt/{number:03}.toml" for number in range(32)]}
