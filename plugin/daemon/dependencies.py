"""What the daemon is given from outside, so that a test can give it something else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from plugin.devices.stall import STALL_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.base.log import Logger
    from plugin.driver.snapshot import GpuSource
    from plugin.kubelet.registration.link import Timing
    from plugin.publication.metrics.serving.scrape import Telemetry
    from plugin.settings.node_config import NodeConfig
    from plugin.sharing.mps.keeper import Tools


class ReadConfig(Protocol):
    """Reads the configuration; raises ConfigError."""

    def __call__(self, label: str | None = None) -> NodeConfig:
        """Return it. `label` is the value of the node's label, None for the one that is remembered."""


@dataclass(frozen=True)
class Dependencies:
    """The driver, the configuration, the service manager, and the folders of the machine.

    `open_source` makes a source for one session with the driver; `read_telemetry` is called in the driver's thread, and
    so is `read_occupancy`, which tells processes alone (None: NVML's).
    """

    open_source: Callable[[], GpuSource]
    read_config: ReadConfig
    logger: Logger
    notify: Callable[[str], None]
    timing: Timing
    read_telemetry: Callable[[], Telemetry]
    proc_folder: Path = Path("/proc")
    log_folder: Path = Path("/var/log")
    cgroup_folder: Path = Path("/sys/fs/cgroup")
    stall_s: float = STALL_S
    read_occupancy: Callable[[], Telemetry] | None = None
    drift_pace_s: float = 60.0  # between two looks for what the node's timer found
    overuse_pace_s: float | None = None  # between two measurements; None: as usual
    follows_files: bool = False  # reads the configuration again when its files change, as no SIGHUP is sent
    mps_tools: Callable[[], Tools] | None = None  # None: those of the machine
    smi: Path = Path("/usr/bin/nvidia-smi")  # where every driver has it
