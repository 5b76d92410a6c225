"""`grapnel check` as a person and as a program sees it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from provision.cli import main

if TYPE_CHECKING:
    from pathlib import Path

DECLARATION = """\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver:
    version: "550.163.01"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "grapnel.yaml").write_text(DECLARATION)
    return tmp_path


def write_inventory(folder: Path) -> None:
    (folder / "inventory").write_text(
        "[gpu_nodes]\nn1\nn2\n[gpu_nodes:vars]\n"
        "grapnel_stack={'driver': {'version': '550.135'}, 'node': {'labels': {'a': 'b'}}}\n"
    )


def test_a_good_file_is_ok_in_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert out.splitlines() == [
        "grapnel.yaml: ok",
        "  driver 550.163.01; containerd with handler nvidia, entitlement kubelet; plugin offers nvidia.com/gpu",
        "  only the file was checked: there is no inventory here, and no --inventory",
    ]


def test_every_error_is_told_and_counted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "grapnel.yaml").write_text(DECLARATION.replace("version", "verzion").replace("GpuStack", "Gpu"))
    assert main(["check"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "grapnel.yaml:2:7: error: kind: 'Gpu' is not a known value" in err
    assert '    5 |     verzion: "550.163.01"\n      |     ^^^^^^^\n      = hint: did you mean version?' in err
    assert err.endswith("grapnel: error: 2 errors in grapnel.yaml\n")
    assert "\033" not in err


def test_a_file_that_is_missing_is_told_with_the_way_to_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "-f", "other.yaml"]) == 1
    assert capsys.readouterr().err.splitlines()[0] == "grapnel: error: other.yaml does not exist"


def test_a_node_needs_an_inventory_and_a_file_its_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "n1"]) == 2
    assert "a NODE needs an inventory" in capsys.readouterr().err
    assert main(["check", "grapnel.yaml"]) == 2
    assert "`grapnel check -f grapnel.yaml`" in capsys.readouterr().err


@pytest.mark.slow
def test_the_nodes_of_an_inventory_are_checked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_inventory(folder)
    assert main(["check"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "grapnel.yaml: ok for 2 nodes"
    assert out.splitlines()[1].startswith("  n1, n2: driver 550.135;")
    assert err == ""


@pytest.mark.slow
def test_explain_shows_who_set_a_value_and_what_it_overrode(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_inventory(folder)
    with (folder / "grapnel.yaml").open("a") as file:
        file.write("  runtime: {handler: special}\n  plugin: {enabled: true}\n")
    assert main(["check", "--explain", "n2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "n2, weakest group first: all, gpu_nodes"
    rows = {line.split("  ")[0]: line.split() for line in lines[3:]}
    assert rows["driver.version"] == [
        "driver.version", '"550.135"', "group", "gpu_nodes",
        '"550.163.01"', "(grapnel.yaml:5:14)",
    ]  # fmt: skip
    assert rows["runtime.handler"] == ["runtime.handler", "special", "grapnel.yaml:6:22", "nvidia", "(default)"]
    assert rows["plugin.enabled"] == ["plugin.enabled", "true", "grapnel.yaml:7:21"]
    assert rows["driver.hold"] == ["driver.hold", "true", "default"]
    assert rows["node.labels.a"] == ["node.labels.a", "b", "group", "gpu_nodes"]


def test_a_file_alone_is_explained_with_what_each_node_decides(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "grapnel.yaml").write_text(DECLARATION.replace('version: "550.163.01"', 'branch: "570"'))
    assert main(["check", "--explain"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("grapnel.yaml: ok\n  driver branch 570; ")
    assert "\nevery node: declared in grapnel.yaml\n" in out
    assert re.search(r"^driver\.branch +\"570\" +grapnel\.yaml:5:13$", out, re.MULTILINE)
    assert re.search(r"^  driver\.kernelModule +from the node's GPUs: open, as is NVIDIA's default", out, re.MULTILINE)
    assert re.search(r"^  driver\.version +the newest of branch 570 that all nodes", out, re.MULTILINE)


def test_a_declaration_that_is_wrong_is_not_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "grapnel.yaml").write_text(DECLARATION.replace("version", "verzion"))
    assert main(["check", "--explain"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "unknown key" in err


@pytest.mark.slow
def test_nodes_that_differ_are_explained_by_what_is_different(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_inventory(folder)
    (folder / "host_vars").mkdir()
    (folder / "host_vars/n2").write_text("grapnel_stack: {driver: {kernelModule: none, branch: '570'}}\n")
    assert main(["check", "--explain"]) == 0
    first, second = capsys.readouterr().out.split("\n\nn2: ")
    assert "\nn1: declared in grapnel.yaml, group gpu_nodes\n" in first
    heading, _, *rows = second.splitlines()
    assert heading == "declared in grapnel.yaml, group gpu_nodes, host n2; what is different:"
    assert [row.split() for row in rows[1:4]] == [
        [
            "driver.version", "null", "host", "n2",
            '"550.135"', "(group", "gpu_nodes);", '"550.163.01"', "(grapnel.yaml:5:14)",
        ],
        ["driver.branch", '"570"', "host", "n2"],
        ["driver.kernelModule", "none", "host", "n2", "auto", "(default)"],
    ]  # fmt: skip
    assert [row.split()[0] for row in rows[6:]] == ["driver.version"]


@pytest.mark.slow
def test_json_holds_the_explanation_of_every_set_of_nodes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_inventory(folder)
    assert main(["check", "--explain", "--json"]) == 0
    content = read_json(capsys)
    (explained,) = content["explained"]
    assert (content["ok"], explained["nodes"]) == (True, ["n1", "n2"])
    assert explained["levels"] == ["grapnel.yaml", "group gpu_nodes"]
    (version,) = [each for each in explained["keys"] if each["key"] == "driver.version"]
    assert version["value"] == "550.135"
    assert [each["key"] for each in explained["derived"]] == [
        "driver.kernelModule", "driver.companions", "driver.signing", "driver.builder",
    ]  # fmt: skip


@pytest.mark.slow
def test_explaining_an_unknown_node_names_the_nearest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_inventory(folder)
    assert main(["check", "--explain", "n22"]) == 1
    assert "did you mean n2?" in capsys.readouterr().err


def read_json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(capsys.readouterr().out)
    return content


def test_json_of_a_good_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json"]) == 0
    expected = {
        "schema": "grapnel.dev/check/v1alpha1",
        "ok": True,
        "file": "grapnel.yaml",
        "nodes": None,
        "findings": [],
    }
    assert read_json(capsys) == expected


def test_json_of_a_bad_file_holds_the_findings(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "grapnel.yaml").write_text(DECLARATION.replace("version", "verzion"))
    assert main(["check", "--json"]) == 1
    content = read_json(capsys)
    assert (content["ok"], content["error"]) == (False, "1 error in grapnel.yaml")
    assert content["findings"] == [
        {
            "severity": "error",
            "source": "grapnel.yaml",
            "line": 5,
            "column": 5,
            "key": "spec.driver.verzion",
            "message": "unknown key",
            "hint": "did you mean version?",
            "nodes": [],
        }
    ]


def test_json_of_any_other_failure_holds_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--json", "-i", "missing"]) == 1
    content = read_json(capsys)
    assert (content["ok"], content["error"], content["findings"]) == (False, "inventory missing does not exist", [])


@pytest.mark.slow
def test_json_of_an_explanation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_inventory(folder)
    assert main(["check", "--explain", "n1", "--json"]) == 0
    content = read_json(capsys)
    assert (content["schema"], content["node"], content["groups"]) == (
        "grapnel.dev/explain/v1alpha1", "n1", ["all", "gpu_nodes"],
    )  # fmt: skip
    (version,) = [each for each in content["keys"] if each["key"] == "driver.version"]
    assert version["level"] == "group"
    assert [each["level"] for each in version["overrode"]] == ["file", "default"]
