"""The command line as a user meets it: words, exit codes, and nothing heavy where it is not needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from plugin import __version__
from plugin.base.errors import DriverNotReady
from plugin.cli import main
from plugin.cli.show import format_table, take_inventory
from plugin.devices.inventory import HostTree
from plugin.driver.snapshot import Snapshot
from tests.plugin.fakes import VERSION, FileSource, gpus, make_dev, write_driver

REPOSITORY = Path(__file__).parents[3]


def test_the_version_is_the_projects() -> None:
    assert f'version = "{__version__}"' in (REPOSITORY / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(["--version"], 0, id="version"),
        pytest.param(["--help"], 0, id="help"),
        pytest.param([], 2, id="no verb"),
        pytest.param(["fly"], 2, id="an unknown verb"),
        pytest.param(["config", "--colour"], 2, id="an unknown option"),
        pytest.param(["verify"], 2, id="verify without an expectation"),
        pytest.param(["release", "--timeout", "0"], 2, id="no time at all"),
        pytest.param(["resume", "--timeout", "soon"], 2, id="a time that is no number"),
        pytest.param(["resume", "--timeout", "nan"], 2, id="a time that is not a number by name"),
    ],
)
def test_usage(arguments: list[str], code: int) -> None:
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == code


def test_config_prints_every_key_in_the_form_of_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"refreshSeconds": 2}')
    assert main(["config", "--config", str(path)]) == 0
    shown = capsys.readouterr().out
    path.write_text(shown)
    assert main(["config", "--config", str(path)]) == 0
    assert capsys.readouterr().out == shown
    assert json.loads(shown)["refreshSeconds"] == 2


@pytest.mark.parametrize("verb", ["run", "devices", "config", "release", "resume"])
def test_a_configuration_with_an_error_is_an_expected_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    path = tmp_path / "node.json"
    path.write_text('{"devroot": "/dev"}')
    assert main([verb, "--config", str(path)]) == 1
    error = capsys.readouterr().err
    assert error.splitlines() == [
        f'grapnel-node: {path}: unknown key "devroot", the nearest one is "devRoot"',
        "hint: the keys are described in docs/contracts/node-config",
    ]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["config", "resume"])
def test_light_verbs_load_nothing_heavy(tmp_path: Path, verb: str) -> None:
    script = "import sys; from plugin.cli import main; main([*sys.argv[1:]]); print(*sys.modules)"
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"stateFolder": str(tmp_path / "state"), "adminSocket": str(tmp_path / "node.sock")}))
    command = [sys.executable, "-c", script, verb, "--config", str(path)]
    loaded = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()
    assert not {"h2", "pynvml", "asyncio", "ssl"} & set(loaded)


@pytest.mark.parametrize("verb", ["release", "resume"])
def test_a_state_folder_that_cannot_be_used_changes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "node.json"
    path.write_text(json.dumps({"stateFolder": str(tmp_path / "file"), "adminSocket": str(tmp_path / "node.sock")}))
    assert main([verb, "--config", str(path), "--json"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert f"{tmp_path}/file cannot be used: file exists" in said.err
    assert "nothing was changed" in said.err


def test_devices_are_taken_from_the_driver_and_let_go(tmp_path: Path) -> None:
    make_dev(tmp_path / "dev", 1)
    write_driver(tmp_path / "driver.json", Snapshot(VERSION, gpus(2)))
    source = FileSource(tmp_path / "driver.json")
    inventory = take_inventory(source, HostTree(tmp_path / "dev", tmp_path))
    assert not source.is_open
    assert [device.path for device in inventory.devices] == [str(tmp_path / "dev/nvidia0")]
    assert [topic for topic, _ in inventory.findings] == ["nvidia1"]


def test_a_driver_without_gpus_is_an_expected_failure(tmp_path: Path) -> None:
    write_driver(tmp_path / "driver.json", Snapshot(VERSION, ()))
    source = FileSource(tmp_path / "driver.json")
    with pytest.raises(DriverNotReady, match="no gpu"):
        take_inventory(source, HostTree(tmp_path, tmp_path))
    assert not source.is_open


def test_columns_are_as_wide_as_they_need_to_be() -> None:
    assert format_table([("A", "B"), ("long", "x")]) == "A     B\nlong  x"


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        pytest.param(["explain", "--last", "5000"], "from 0 to 1000", id="more allocations than are kept"),
        pytest.param(["explain", "--last", "-1"], "from 0 to 1000", id="less than none"),
        pytest.param(["explain", "--last", "few"], "from 0 to 1000", id="no number of allocations"),
        pytest.param(["release", "--timeout", "0"], "from 1 to 600", id="no time at all"),
        pytest.param(["verify", "--expect", "-", "--timeout", "nan"], "from 1 to 600", id="a time that is no number"),
        pytest.param(["resume", "--timeout", "soon"], "from 1 to 600", id="a word for a time"),
    ],
)
def test_a_number_that_cannot_be_is_told_with_its_limits(
    words: list[str], wanted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert wanted in capsys.readouterr().err
