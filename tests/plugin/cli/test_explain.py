"""`grapnel-node config --explain`, and NVIDIA's options on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from plugin.base.errors import ConfigError
from plugin.cli import main
from plugin.settings.load import Invocation, load
from plugin.settings.node_config import KEYS
from plugin.settings.nvidia.table import SETTINGS
from plugin.settings.store import HeardLabel, write_heard_label


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "nvidia.yaml"
    path.write_text("version: v1\nflags:\n  migStrategy: mixed\n  plugin: {nvidiaCTKPath: /opt/nvidia-ctk}\n")
    return path


@pytest.fixture
def node_json(tmp_path: Path, file: Path) -> str:
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"nvidiaConfigFile": str(file), "devRoot": "/own/dev"}))
    return str(path)


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    assert main(["config", "--explain", "--json", *arguments]) == 0
    return {line["name"]: line for line in json.loads(capsys.readouterr().out)["settings"]}


def test_every_setting_is_explained(capsys: pytest.CaptureFixture[str], node_json: str) -> None:
    lines = explained(capsys, "--config", node_json)
    assert set(lines) == {*KEYS, *(setting.name for setting in SETTINGS)}
    assert all(line["origin"] for line in lines.values())


def test_each_source_is_named_for_what_it_decides(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, node_json: str, file: Path
) -> None:
    monkeypatch.setenv("DEVICE_ID_STRATEGY", "index")
    lines = explained(capsys, "--config", node_json, "--pass-device-specs=false")
    found = {name: (lines[name]["value"], lines[name]["origin"]) for name in lines}
    assert found["flags.plugin.passDeviceSpecs"] == (False, "--pass-device-specs")
    assert found["flags.plugin.deviceIDStrategy"] == ("index", "DEVICE_ID_STRATEGY")
    assert found["flags.migStrategy"] == ("mixed", f"{file}:3")
    assert found["devRoot"] == ("/own/dev", node_json)
    assert found["flags.nvidiaDevRoot"] == ("/own", "follows devRoot")
    assert found["kubeletRoot"] == ("/var/lib/kubelet", "default")
    assert lines["flags.plugin.nvidiaCTKPath"]["noEffect"].startswith("the CDI file is the hook's")
    assert found["flags.useNodeFeatureAPI"] == (False, "follows labels")
    assert found["flags.gfd.machineTypeFile"] == ("/sys/class/dmi/id/product_name", "follows sysRoot")
    assert lines["flags.migStrategy"]["noEffect"] is None


def test_shares_and_names_of_mig_devices_are_explained(
    capsys: pytest.CaptureFixture[str], node_json: str, file: Path
) -> None:
    file.write_text(
        "resources: {mig: [{pattern: 1g.*, name: small}]}\n"
        "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}\n"
    )
    lines = explained(capsys, "--config", node_json)
    assert lines["shares[0]"]["value"] == "nvidia.com/gpu -> 4 shares by time-slicing as nvidia.com/gpu.shared"
    assert lines["shares[0]"]["origin"] == f"{file}:2"
    assert (lines["resources.mig[0]"]["value"], lines["resources.mig[0]"]["noEffect"]) == (
        "1g.* -> nvidia.com/small",
        "it takes migStrategy mixed",
    )


@pytest.mark.slow
def test_a_variable_of_feature_discovery_that_nobody_reads_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, node_json: str
) -> None:
    monkeypatch.setenv("GFD_MIG_STRATEGY", "single")
    assert main(["config", "--explain", "--config", node_json]) == 0
    assert "GFD_MIG_STRATEGY changes nothing" in capsys.readouterr().err


@pytest.mark.slow
def test_a_flag_wins_over_a_variable_over_a_file(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, node_json: str
) -> None:
    monkeypatch.setenv("MIG_STRATEGY", "single")
    assert explained(capsys, "--config", node_json)["flags.migStrategy"]["value"] == "single"
    flagged = explained(capsys, "--config", node_json, "--mig-strategy", "none")
    assert flagged["flags.migStrategy"] == {
        "name": "flags.migStrategy",
        "value": "none",
        "origin": "--mig-strategy",
        "noEffect": None,
    }


def test_the_file_of_the_command_line_wins_over_the_one_of_node_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, node_json: str, tmp_path: Path
) -> None:
    for name in ("by-variable", "by-flag"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setenv("CONFIG_FILE", str(tmp_path / "by-variable"))
    by_variable = explained(capsys, "--config", node_json)
    assert by_variable["nvidiaConfigFile"]["origin"] == "CONFIG_FILE"
    assert by_variable["flags.migStrategy"]["value"] == "none"
    by_flag = explained(capsys, "--config", node_json, "--config-file", str(tmp_path / "by-flag"))
    assert by_flag["nvidiaConfigFile"]["value"] == str(tmp_path / "by-flag")
    assert by_flag["nvidiaConfigFile"]["origin"] == "--config-file"


def test_the_standard_file_need_not_be_there(node_json: str) -> None:
    standard = Path(node_json).with_name("standard.yaml")
    Path(node_json).write_text(json.dumps({"nvidiaConfigFile": str(standard)}))
    invocation = Invocation(Path(node_json), {}, {})
    assert not load(invocation, default_path=standard).has_file
    with pytest.raises(ConfigError, match=r"standard\.yaml: no such file"):
        load(invocation)
    standard.write_text("flags: {migStrategy: single}")
    assert load(invocation, default_path=standard).settings["flags.migStrategy"].value == "single"


def test_a_file_that_is_named_must_be_there(node_json: str, tmp_path: Path) -> None:
    standard = tmp_path / "standard.yaml"
    for invocation in (
        Invocation(Path(node_json), {"config-file": ("--config-file", str(standard))}, {}),
        Invocation(Path(node_json), {}, {"CONFIG_FILE": str(standard)}),
    ):
        with pytest.raises(ConfigError, match=r"standard\.yaml: no such file"):
            load(invocation, default_path=standard)


@pytest.mark.slow
def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str], node_json: str, file: Path) -> None:
    assert main(["config", "--explain", "--config", node_json, "--device-list-strategy", "envvar,cdi-cri"]) == 0
    shown = capsys.readouterr()
    rows = {row.split()[0]: row.split() for row in shown.out.splitlines()}
    assert rows["SETTING"] == ["SETTING", "VALUE", "FROM", "COUNTS"]
    assert rows["flags.plugin.deviceListStrategy"][1:] == ["envvar,cdi-cri", "--device-list-strategy", "yes"]
    assert rows["flags.plugin.nvidiaCTKPath"][1:4] == ["/opt/nvidia-ctk", f"{file}:4", "no:"]
    assert shown.err.startswith(f"note: {file}:4: nvidiaCTKPath changes nothing: ")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        pytest.param(["--pass-device-specs"], True, id="a switch alone"),
        pytest.param(["--pass-device-specs", "false"], False, id="a switch with a word"),
        pytest.param(["--pass-device-specs=F"], False, id="a switch with Go's word"),
    ],
)
def test_switches(capsys: pytest.CaptureFixture[str], node_json: str, arguments: list[str], value: bool) -> None:  # noqa: FBT001 - a column
    lines = explained(capsys, "--config", node_json, *arguments)
    assert lines["flags.plugin.passDeviceSpecs"]["value"] is value


def test_a_list_may_be_given_in_parts_and_under_an_old_name(capsys: pytest.CaptureFixture[str], node_json: str) -> None:
    lists = ("--device-list-strategy=envvar", "--device-list-strategy", "volume-mounts")
    lines = explained(capsys, "--config", node_json, *lists, "--container-driver-root=/driver-root")
    assert lines["flags.plugin.deviceListStrategy"]["value"] == ["envvar", "volume-mounts"]
    assert lines["flags.plugin.containerDriverRoot"]["value"] == "/driver-root"


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "config", "devices"])
def test_a_wrong_value_is_an_expected_failure(capsys: pytest.CaptureFixture[str], node_json: str, verb: str) -> None:
    assert main([verb, "--config", node_json, "--mig-strategy", "some"]) == 1
    assert "--mig-strategy: must be one of: none, single, mixed" in capsys.readouterr().err


def test_the_beginning_of_an_option_is_not_an_option(node_json: str) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["config", "--config", node_json, "--mig-strat", "none"])
    assert raised.value.code == 2


@pytest.fixture
def by_label(tmp_path: Path) -> str:
    folder = tmp_path / "nvidia.d"
    folder.mkdir()
    (folder / "shared").write_text("flags: {migStrategy: mixed}\n")
    path = tmp_path / "by-label.json"
    keys = {"nvidiaConfigFolder": str(folder), "kubernetesApi": "in-cluster", "stateFolder": str(tmp_path / "state")}
    path.write_text(json.dumps(keys))
    return str(path)


def test_the_file_that_the_label_named_is_shown_with_its_origin(
    capsys: pytest.CaptureFixture[str], by_label: str, tmp_path: Path
) -> None:
    write_heard_label(tmp_path / "state", HeardLabel("shared"))
    lines = explained(capsys, "--config", by_label)
    assert lines["nvidiaConfigFile"]["value"] == str(tmp_path / "nvidia.d/shared")
    assert lines["nvidiaConfigFile"]["origin"] == "label nvidia.com/device-plugin.config"
    assert lines["flags.migStrategy"]["value"] == "mixed"
    assert lines["configFolder"]["origin"] == "follows nvidiaConfigFolder"


@pytest.mark.parametrize(
    ("heard", "words"),
    [
        pytest.param(None, "is not known: the daemon has not heard it, or this is not root", id="not heard"),
        pytest.param(HeardLabel("shared", "x", "x cannot be used: no"), "config: x cannot be used: no", id="refused"),
    ],
)
def test_what_the_daemon_could_not_do_with_the_label_is_noted(
    capsys: pytest.CaptureFixture[str], by_label: str, tmp_path: Path, heard: HeardLabel | None, words: str
) -> None:
    if heard is not None:
        write_heard_label(tmp_path / "state", heard)
    assert main(["config", "--explain", "--config", by_label]) == 0
    assert words in capsys.readouterr().err
