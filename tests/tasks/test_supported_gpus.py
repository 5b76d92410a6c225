"""The list of GPUs is renewed from a driver's own file, or left as it is."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from provision.planning.driver.gpu_list import parse_list
from tasks.generated.supported_gpus import DATA, main

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a copy of the data file."""
    return shutil.copy(DATA, tmp_path / "supported-gpus.json")


def test_the_list_is_renewed(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = tmp_path / "shipped.json"
    chips = [{"devid": "0x2901", "name": "NVIDIA B200", "features": ["kernelopen"]}]
    shipped.write_text(json.dumps({"chips": chips}))

    assert main([str(shipped), "610.57.04"], data) == 0

    (group,) = parse_list(data.read_bytes()).groups
    assert (group.open, group.proprietary, group.oldest) == (True, False, 570)
    assert group.gpus == {"2901": "NVIDIA B200"}
    assert "1 GPUs, 0 new" in capsys.readouterr().out


def test_another_file_changes_nothing(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")

    assert main([str(other), "610.57.04"], data) == 1

    assert data.read_bytes() == DATA.read_bytes()
    assert "other.json is not a driver's supported-gpus.json" in capsys.readouterr().err


def test_the_version_is_a_driver_s(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["-", "13.1"], data)

    assert "'13.1' is not a driver's version" in capsys.readouterr().err
