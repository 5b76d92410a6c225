"""Which GPUs get an MPS control daemon, with which ceilings, and why others do not. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.devices.sharing import SIZE_UNKNOWN, Strategy
from plugin.driver.uuid import is_gpu_uuid
from plugin.kubelet.list_size import plan_that_fits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from plugin.devices.inventory import Inventory
    from plugin.devices.resources import OfferPlan
    from plugin.settings.node_config import NodeConfig

HOST = Path("/")
UNIT = "grapnel-mps-"
_MIB = 1024 * 1024
_LEAST_MEMORY_MIB = 16  # a context of CUDA alone takes more than this
# Clients that a server has room for (nvidia-cuda-mps-control(1)). NVIDIA's plugin counts Volta itself (7.0) with the
# older ones, against its own comment and the manual.
_VOLTA, _KEPLER = (7, 0), (3, 5)
_CLIENTS, _CLIENTS_BEFORE_VOLTA = 48, 16
_PLAIN_PATH = re.compile(r"(/[A-Za-z0-9._-]+)+")  # it is a part of properties of a unit, and of mounts
_LONGEST_NAME = "control_privileged"
_MAX_SOCKET_PATH = 107  # unix(7); a control daemon that cannot bind ends without a word


@dataclass(frozen=True)
class SharedGpu:
    """A GPU as it is to be shared. `compute_capability` is "" and `memory_bytes` None where the driver does not say.

    `memory_mib` and `thread_percentage` are ceilings that were chosen; 0: those that come of `replicas`.
    """

    uuid: str
    index: int
    memory_bytes: int | None
    replicas: int
    compute_capability: str = ""
    is_cut: bool = False
    memory_mib: int = 0
    thread_percentage: int = 0


@dataclass(frozen=True)
class MpsDaemon:
    """The control daemon of one GPU. The ceilings hold for each process that uses the GPU, whatever it asks for."""

    uuid: str
    folder: Path
    replicas: int
    memory_mib: int
    thread_percentage: int

    @property
    def pipe(self) -> Path:
        """Where clients, servers and the control daemon meet: CUDA_MPS_PIPE_DIRECTORY, the same in every container."""
        return self.folder / "pipe"

    @property
    def log(self) -> Path:
        """The folder of control.log and server.log."""
        return self.folder / "log"

    @property
    def shm(self) -> Path:
        """What server and clients have as /dev/shm."""
        return self.folder / "shm"

    @property
    def earlier_mode(self) -> Path:
        """Remembers the compute mode that the GPU had before; in /run, as a reboot forgets both."""
        return self.folder / "compute-mode"

    @property
    def unit(self) -> str:
        """The systemd unit that the control daemon runs in."""
        return f"{UNIT}{self.uuid}.service"


@dataclass(frozen=True)
class MpsPlan:
    """The daemons of a node below one folder, and the GPUs that cannot be shared this way: UUID and why."""

    root: Path
    daemons: tuple[MpsDaemon, ...] = ()
    refusals: tuple[tuple[str, str], ...] = ()


def plan_of_node(config: NodeConfig, offers: OfferPlan, claimed: Iterable[SharedGpu] = ()) -> MpsPlan:
    """Return what GPUs need that are offered in shares through MPS, and those that claims share so."""
    shared: dict[str, SharedGpu] = {}
    for unit in (unit for each in offers.resources.values() if each.strategy is Strategy.MPS for unit in each.units):
        gpu, before = unit.gpu.gpu, shared.get(unit.source_id)
        if unit.device_id != unit.source_id:
            shared[unit.source_id] = SharedGpu(
                unit.source_id,
                gpu.index,
                gpu.memory_bytes,
                1 if before is None else before.replicas + 1,
                gpu.compute_capability,
                is_cut=bool(gpu.is_cut) or unit.slice is not None,
            )
    others = {gpu.uuid: gpu for gpu in claimed}
    return plan_daemons((others | shared).values(), config.mps_root, config.settings.driver_root)


def refusals_of_node(config: NodeConfig, inventory: Inventory) -> Mapping[str, str]:
    """Return which GPUs cannot be shared through MPS whatever is tried, by UUID, and why."""
    return dict(plan_of_node(config, plan_that_fits(inventory, config.offer_rules)).refusals)


def plan_daemons(gpus: Iterable[SharedGpu], root: Path, driver_root: Path = HOST) -> MpsPlan:
    """Return a control daemon for each GPU that MPS can share, below `root`; `driver_root` is where the driver is."""
    daemons, refusals = [], []
    for gpu in sorted(gpus, key=lambda gpu: (gpu.index, gpu.uuid)):
        daemon = _daemon(gpu, root)
        why = _why_not(gpu, daemon) if driver_root == HOST else f"the driver is installed in {driver_root}, not in /"
        if why:
            refusals.append((gpu.uuid, f"cannot be shared through MPS: {why}"))
        else:
            daemons.append(daemon)
    return MpsPlan(root, tuple(daemons), tuple(refusals))


def _daemon(gpu: SharedGpu, root: Path) -> MpsDaemon:
    """Round memory down, so that all shares fit, and threads up.

    Threads are a ceiling and no reservation: shares that come to more than the GPU compete for a part of it. Rounded
    down, 34 shares would leave a third of the GPU unused.
    """
    replicas = max(gpu.replicas, 1)
    memory_mib = (gpu.memory_bytes or 0) // replicas // _MIB
    memory_mib = min(gpu.memory_mib or memory_mib, memory_mib)
    return MpsDaemon(gpu.uuid, root / gpu.uuid, replicas, memory_mib, gpu.thread_percentage or -(-100 // replicas))


def _why_not(gpu: SharedGpu, daemon: MpsDaemon) -> str:
    capability = _capability(gpu.compute_capability)
    most = _CLIENTS if capability >= _VOLTA else _CLIENTS_BEFORE_VOLTA
    if not is_gpu_uuid(gpu.uuid):
        return "its uuid is not that of a gpu"
    if gpu.is_cut:
        return "it is in MIG mode"
    if gpu.compute_capability and capability < _KEPLER:
        return f"its compute capability is {gpu.compute_capability}, and MPS needs 3.5"
    if gpu.replicas > most:
        known = f"of compute capability {gpu.compute_capability}" if gpu.compute_capability else "of unknown kind"
        return f"{gpu.replicas} replicas, and a gpu {known} has room for {most} clients"
    if gpu.memory_bytes is None:
        return SIZE_UNKNOWN
    if daemon.memory_mib < _LEAST_MEMORY_MIB:
        return f"{gpu.replicas} replicas leave {daemon.memory_mib} MiB to each"
    path = daemon.pipe / _LONGEST_NAME
    if not _PLAIN_PATH.fullmatch(str(path)):
        return f"{path} has other characters than letters, digits, dot, dash and underscore, choose another mpsRoot"
    if len(str(path)) > _MAX_SOCKET_PATH:
        return f"{path} is too long for a socket, choose a shorter mpsRoot"
    return ""


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return (int(major), int(minor)) if major.isdecimal() and minor.isdecimal() else (0, 0)
