"""GPUs are cut by MIG as they were before the module was unloaded; what somebody else has cut stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.mig import instances as mig

from lab.nvml import install, models, state
from lab.nvml.machine import Failure

if TYPE_CHECKING:
    from lab.nvml.machine import Machine

ROOT = Path(__file__).parents[3]
SCRIPT = """
import json, sys
from ansible_collections.grapnel.node.plugins.module_utils.driver.mig import instances as mig
from ansible_collections.grapnel.node.plugins.module_utils.driver.mig.nvml import Nvml, NvmlError

try:
    with Nvml() as nvml:
        made = mig.restore_layout(nvml, mig.parse_layout(json.loads(sys.argv[1]))) if sys.argv[1:] else []
        answer = {"made": made, "layout": mig.render_layout(mig.read_layout(nvml))}
except (mig.MigError, NvmlError) as error:
    answer = {"error": str(error)}
print(json.dumps(answer))
"""
CUT = models.with_mig(models.machine("a100-40gb", 2), 1, ["3g.20gb", "2g.10gb", "1g.5gb"])
UUID = CUT.gpus[1].uuid


def forget(machine: Machine, *, mode: bool = True) -> Machine:
    """Return the machine as a reload of the module leaves it: without instances, on some GPUs without the mode."""
    return machine.with_gpu(1, migs=(), mig_enabled=mode, mig_pending=mode)


def ask(library: Path, wanted: dict[str, Any] | None = None) -> dict[str, Any]:
    """Read the layout in a process that finds the simulated NVML, after it was restored if one is given."""
    words = [] if wanted is None else [json.dumps(wanted)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT, *words],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(library.parent),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "playbooks/collections")]),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(json.loads(done.stdout))


@pytest.fixture
def library(tmp_path: Path) -> Path:
    return install(tmp_path / "lib", "550.163.01", CUT)


def test_the_layout_has_profiles_and_places_of_gpus_in_mig_mode(library: Path) -> None:
    answer = ask(library)

    assert answer["layout"] == {
        UUID: [
            {"profile": 2, "start": 0, "size": 4, "slices": [{"profile": 2, "start": 0, "size": 3}]},
            {"profile": 1, "start": 4, "size": 2, "slices": [{"profile": 1, "start": 0, "size": 2}]},
            {"profile": 0, "start": 6, "size": 1, "slices": [{"profile": 0, "start": 0, "size": 1}]},
        ]
    }


@pytest.mark.parametrize("mode", [True, False], ids=["the mode is kept", "the mode is gone too"])
def test_what_a_reload_has_forgotten_is_made_again(library: Path, *, mode: bool) -> None:
    before = ask(library)["layout"]
    state.write(library, forget(CUT, mode=mode))

    answer = ask(library, before)

    assert answer["layout"] == before
    assert answer["made"][:1] == ([f"{UUID}: mig mode"] if not mode else [f"{UUID}: instance of profile 2 at 0"])
    migs = state.read(library).gpus[1].migs
    assert [(one.profile, one.gpu_instance) for one in migs] == [("3g.20gb", 7), ("2g.10gb", 8), ("1g.5gb", 9)]


def test_instances_are_gone_with_the_module_and_made_again_after_each_load(library: Path, tmp_path: Path) -> None:
    before = ask(library)["layout"]
    version = tmp_path / "sys/module/nvidia/version"
    version.parent.mkdir(parents=True)
    state.write(library, replace(forget(CUT), sys_root=str(tmp_path / "sys")))

    for load in range(1, 4):
        version.write_text("550.163.01\n")
        os.utime(version, (load, load))
        assert ask(library)["layout"] == {UUID: []}
        assert ask(library, before)["layout"] == before
        assert ask(library)["layout"] == before


def test_made_again_the_devices_have_the_names_that_they_had(library: Path) -> None:
    before = ask(library)["layout"]
    names = []
    for _ in range(2):
        state.write(library, forget(CUT))
        ask(library, before)
        names.append([one.uuid for one in state.read(library).gpus[1].migs])

    assert names[0] == names[1]


def test_compute_instances_that_share_a_gpu_instance_are_made_again(library: Path) -> None:
    (whole,) = (one for one in CUT.gpus[1].migs if one.profile == "2g.10gb")
    halves = tuple(
        replace(whole, index=n, uuid=f"MIG-half-{n}", compute_instance=n, compute_slices=1, profile="1c.2g.10gb")
        for n in range(2)
    )
    state.write(library, CUT.with_gpu(1, migs=halves))
    before = ask(library)["layout"]
    state.write(library, forget(CUT))

    answer = ask(library, before)

    assert answer["layout"] == before
    assert [one["profile"] for one in before[UUID][0]["slices"]] == [0, 0]
    assert [one.profile for one in state.read(library).gpus[1].migs] == ["1c.2g.10gb", "1c.2g.10gb"]


def test_where_everything_is_there_nothing_is_made(library: Path) -> None:
    before = ask(library)["layout"]

    assert ask(library, before) == {"made": [], "layout": before}


def test_what_was_half_made_is_completed(library: Path) -> None:
    before = ask(library)["layout"]
    first = CUT.gpus[1].migs[0]
    state.write(library, CUT.with_gpu(1, migs=(replace(first, compute_slices=0),)))

    answer = ask(library, before)

    assert answer["layout"] == before
    assert answer["made"][0] == f"{UUID}: compute instance of profile 2"


def test_instances_of_somebody_else_are_left_alone_and_named(library: Path) -> None:
    before = ask(library)["layout"]
    other = replace(CUT.gpus[1].migs[0], placement_start=0, placement_size=8, gpu_slices=7, compute_slices=7)
    state.write(library, CUT.with_gpu(1, migs=(other,)))

    answer = ask(library, before)

    assert answer == {"error": f"{UUID}: somebody has made other mig instances: profile 4 at 0"}
    assert state.read(library).gpus[1].migs == (other,)


def test_a_gpu_that_is_gone_is_named(library: Path) -> None:
    before = ask(library)["layout"]
    state.write(library, models.machine("a100-40gb", 1))

    assert ask(library, before) == {"error": f"{UUID} is not there to be cut by mig"}


def test_what_nvml_refuses_is_told_in_its_words(library: Path) -> None:
    before = ask(library)["layout"]
    refusal = Failure("nvmlDeviceCreateGpuInstanceWithPlacement", 1, 23)
    state.write(library, replace(forget(CUT), failures=(refusal,)))

    assert ask(library, before)["error"].startswith(f"{UUID}: nvmlDeviceCreateGpuInstanceWithPlacement: ")


def test_a_machine_without_mig_has_no_layout(tmp_path: Path) -> None:
    assert ask(install(tmp_path / "lib", "550.163.01", models.machine("l4", 1)))["layout"] == {}


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"GPU-1": {}},
        {"GPU-1": [{"profile": 1}]},
        {"GPU-1": [{"profile": True, "start": 0, "size": 1, "slices": []}]},
    ],
    ids=["a list", "no list of instances", "no place", "a truth for a number"],
)
def test_what_is_no_layout_is_refused(document: object) -> None:
    with pytest.raises(ValueError, match="mig"):
        mig.parse_layout(document)


def test_a_layout_is_read_as_it_was_written() -> None:
    layout = {"GPU-1": (mig.Cut(2, 0, 4, (mig.Slice(0, 0, 1),)), mig.Cut(0, 4, 1))}

    assert mig.parse_layout(json.loads(json.dumps(mig.render_layout(layout)))) == layout
