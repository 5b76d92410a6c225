"""containerd's effective configuration is compared key by key, except our handler and keys about files."""

from __future__ import annotations

import sys
import tomllib
from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.engines.containerd_dumps import (
    find_parser,
    foreign_differences,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.playbooks.fakes import Machine

CRI = "[plugins.'io.containerd.cri.v1.runtime']\n"
CRI_2 = "[plugins.'io.containerd.grpc.v1.cri']\n"
OURS = """
[plugins.cri.containerd.runtimes.nvidia]
base_runtime_spec = "/etc/grapnel/containerd/base-spec.json"
container_annotations = ["grapnel.dev/*"]
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("a = 1", f"a = 1\n{OURS}", id="our handler is new"),
        pytest.param(f"a = 1\n{OURS}", "a = 1", id="our handler is gone"),
        pytest.param("version = 2\nimports = ['a']", "version = 3\nimports = ['b']", id="files and their version"),
        pytest.param("[r]\nx = ''\ny = 0\nz = []\nb = false\n[r.options]", "", id="empty and absent are the same"),
        pytest.param(f"{CRI}enable_cdi = false", f"{CRI}enable_cdi = true", id="devices by their names are taken"),
        pytest.param("", f"{CRI_2}enable_cdi = true", id="the same with containerd 1.7"),
        pytest.param("[r]\nsandbox_mode = 'podsandbox'", "[r]\nsandbox_mode = ''", id="what containerd fills in"),
    ],
)
def test_nothing_of_somebody_else_differs(before: str, after: str) -> None:
    assert foreign_differences(before, after, tomllib.loads) is None


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("[p.'io.x']\nsize = 999", "[p.'io.x']\nsize = 16384", "p.'io.x'.size would go from 999 to 16384"),
        ("[r.runc]\npath = '/bin/runc'", "", "r.runc.path would go from /bin/runc to nothing"),
        (f"{CRI}enable_cdi = true", "", f"{CRI[1:-2]}.enable_cdi would go from True to nothing"),
        ("", "[plugins.other]\nenable_cdi = true", "plugins.other.enable_cdi would go from nothing to True"),
        ("on = true", "on = false", "on would go from True to nothing"),
        ("a = ['x']", "a = ['y']", "a would go from (not shown) to (not shown)"),
        ("[x.auth]\npin = 1234", "[x.auth]\npin = 5678", "x.auth.pin would go from (not shown) to (not shown)"),
        ("[c]\npassword = 'hunter2'", "", "c.password would go from (not shown) to nothing"),
        ("url = 'https://me:pw@host'", "", "url would go from (not shown) to nothing"),
        ("a=1\nb=1\nc=1\nd=1\ne=1", "", "a would go from 1 to nothing, b would go from 1 to nothing, c would"),
    ],
)
def test_a_difference_is_named_with_both_values_unless_they_may_be_secret(before: str, after: str, words: str) -> None:
    found = foreign_differences(before, after, tomllib.loads)

    assert found is not None
    assert found.startswith(words)


def test_many_differences_are_counted() -> None:
    found = foreign_differences("a=1\nb=1\nc=1\nd=1\ne=1", "", tomllib.loads)

    assert found is not None
    assert found.endswith(" and 2 more")


def test_a_handler_that_only_has_our_name_is_somebody_s() -> None:
    theirs = OURS.replace("/etc/grapnel/containerd/base-spec.json", "/opt/spec.json")

    assert foreign_differences("", theirs, tomllib.loads) is not None


def test_what_is_no_toml_is_told() -> None:
    assert foreign_differences("", "=", tomllib.loads) == "what it prints is not TOML"


def test_a_later_python_reads_what_the_nodes_own_cannot(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nodes of RHEL 9 have 3.9, and were refused with every configuration of containerd."""
    monkeypatch.setitem(sys.modules, "tomllib", None)
    machine.write("/usr/bin/python3.9", mode=0o755)
    assert find_parser(machine.host, tmp_path) is None
    assert "install one" in (foreign_differences("", "", find_parser(machine.host, tmp_path)) or "")

    machine.write("/usr/bin/python3.11", mode=0o755)
    machine.teach("/usr/bin/python3.11 -I -c", '{"root": "/data"}')
    parse = find_parser(machine.host, tmp_path)

    assert parse is not None
    assert parse('root = "/data"\n') == {"root": "/data"}
