"""`grapnel check` of a GpuStack of a cluster, and what other verbs say of such a file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from provision.base.errors import ExitCode
from provision.cli import main

if TYPE_CHECKING:
    from pathlib import Path

STACK = """apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
metadata: {name: training}
spec:
  nodeSelector: {matchLabels: {pool: training}}
  driver: {version: "550.163.01"}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "stack.yaml"
    path.write_text(STACK)
    return path


def test_a_stack_is_checked_by_the_rules_of_a_cluster(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-f", str(file)]) == ExitCode.DONE
    assert "a GpuStack of a cluster" in capsys.readouterr().out
    file.write_text(STACK.replace("550.163.01", '550.163.01", source: "bundle'))
    assert main(["check", "--json", "-f", str(file)]) == ExitCode.FAILED
    found = json.loads(capsys.readouterr().out)
    assert not found["ok"]
    assert found["findings"][0]["line"] == 6


def test_options_about_machines_are_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-f", str(file), "-i", "hosts"]) == ExitCode.USAGE
    assert "no machines of an inventory" in capsys.readouterr().err


def test_verbs_of_an_inventory_say_whose_file_it_is(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("gpu1\n")
    assert main(["drift", "-f", str(file), "-i", str(hosts)]) == ExitCode.FAILED
    assert "this is a GpuStack of a cluster: `kubectl apply` it" in capsys.readouterr().err
