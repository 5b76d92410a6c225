"""Runs the real daemon with a driver that is a file: `run_with_file.py NODE_JSON DRIVER_JSON TIMING_JSON`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from plugin.base.log import Logger, configure
from plugin.daemon.daemon import run
from plugin.daemon.dependencies import Dependencies
from plugin.daemon.systemd import notify
from plugin.devices.stall import STALL_S
from plugin.kubelet.registration.link import Timing
from plugin.settings.load import Invocation, load, load_to_start
from plugin.sharing.mps.control import Control
from plugin.sharing.mps.keeper import Tools
from plugin.sharing.mps.units import Units
from tests.plugin.fakes import FileSource, read_telemetry

MPS = "GRAPNEL_TEST_MPS"  # the folder of the simulated programs


def _simulated_mps() -> Tools:
    from tests.plugin.mps.node import QUICK, Modes  # noqa: PLC0415 - few daemons need it

    programs = Path(os.environ[MPS])
    control = programs / "usr/bin/nvidia-cuda-mps-control"
    units = Units(control, f"{programs}/systemd/")
    return Tools(Control(control, QUICK.answer_s), units, Modes(), Logger(), QUICK)


def main(config_path: Path, driver_path: Path, timing: Timing, stall_s: float) -> None:
    configure(sys.stderr, debug=False)
    invocation = Invocation(config_path, {}, os.environ)
    dependencies = Dependencies(
        open_source=lambda: FileSource(driver_path),
        read_config=lambda label=None: load(invocation, label=label).config,
        logger=Logger(),
        notify=notify,
        timing=timing,
        read_telemetry=lambda: read_telemetry(driver_path),
        read_occupancy=lambda: read_telemetry(driver_path),
        overuse_pace_s=2.0,
        drift_pace_s=0.2,
        proc_folder=driver_path.parent / "metrics/proc",
        log_folder=driver_path.parent / "metrics/log",
        stall_s=stall_s,
        mps_tools=_simulated_mps if MPS in os.environ else None,
        smi=driver_path.parent / "nvidia-smi",
    )
    asyncio.run(run(load_to_start(invocation).config, dependencies))


if __name__ == "__main__":
    seconds = json.loads(sys.argv[3])
    stall = seconds.pop("stall_s", STALL_S)
    main(Path(sys.argv[1]), Path(sys.argv[2]), Timing(**seconds), stall)
