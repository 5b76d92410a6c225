"""`grapnel-node offered`: what is reason to say that a node gives its GPUs as its file says, and what is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from plugin.cli import release
from plugin.cli.release import show_offered

if TYPE_CHECKING:
    from pathlib import Path

HEALTHY = {"index": 0, "uuid": "GPU-0", "minor": 0, "pciAddress": "0000:01:00.0", "model": "A100", "unhealthy": ""}
ILL = {**HEALTHY, "unhealthy": "xid 79"}
SAID: dict[str, Any] = {"released": False, "interface": "devicePlugin", "offered": 0, "held": 0, "waits": []}
NO_GPU = ["nvml lists no gpu"]
NIC, GPU, AUDIO = ("0x15b3", "0x020700"), ("0x10de", "0x030200"), ("0x10de", "0x040300")


@pytest.mark.parametrize(
    ("answer", "machine", "problems"),
    [
        ({"offered": 1, "gpus": [HEALTHY]}, [GPU], []),
        ({"held": 1, "gpus": [HEALTHY]}, [GPU], []),
        ({"gpus": [HEALTHY]}, [GPU], ["no GPU is offered by devicePlugin"]),
        ({"gpus": [ILL, HEALTHY]}, [GPU], ["no GPU is offered by devicePlugin"]),
        pytest.param({"gpus": [ILL]}, [GPU], [], id="all are ill, which is no fault of the interface"),
        pytest.param({"waits": NO_GPU, "gpus": []}, [NIC, AUDIO], [], id="a machine without a gpu"),
        pytest.param({"waits": NO_GPU, "gpus": []}, [NIC, GPU], NO_GPU, id="a gpu that the driver does not know"),
        pytest.param({"waits": NO_GPU, "gpus": []}, None, NO_GPU, id="a machine that does not say what it has"),
        pytest.param({"waits": ["the slices"], "gpus": [ILL]}, [NIC], ["the slices"], id="a gpu on no bus"),
        pytest.param(
            {"interface": "dra", "gpus": []},
            [NIC],
            ["the daemon gives GPUs by dra, and node.json says devicePlugin"],
            id="a daemon that has not read its file",
        ),
    ],
)
def test_what_cannot_be_given_by_any_interface_keeps_none_from_being_proven(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    answer: dict[str, Any],
    machine: list[tuple[str, str]] | None,
    problems: list[str],
) -> None:
    """A node without a GPU went back to the former interface, as it offered none."""
    for number, (vendor, kind) in enumerate(machine or ()):
        device = tmp_path / f"bus/pci/devices/0000:0{number}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
        (device / "class").write_text(f"{kind}\n")
    (tmp_path / "node.json").write_text(json.dumps({"sysRoot": str(tmp_path)}))
    monkeypatch.setattr(release, "ask", lambda *_: {**SAID, **answer})

    code = show_offered(tmp_path / "node.json", timeout_s=0.0, as_json=True)

    assert json.loads(capsys.readouterr().out)["problems"] == problems
    assert code == (3 if problems else 0)
