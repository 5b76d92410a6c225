"""A session with libnvidia-ml.so.1, and one snapshot of every GPU.

The library is unloaded when a session ends. The loader finds a library that is still mapped by its
SONAME, so a daemon that kept it would talk to the old one after the driver has been replaced
("driver/library version mismatch") until it was restarted. CUDA's library, which NVML would load and keep, is kept out.
"""

from __future__ import annotations

import _ctypes
import ctypes
import re
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import pynvml

from plugin.base.errors import DriverNotReady
from plugin.driver.cuda_probe.runner import ask_version, path_of
from plugin.driver.nvml import details
from plugin.driver.nvml.condition import read_conditions
from plugin.driver.nvml.events import XidWatch
from plugin.driver.nvml.links import NVLINK_XIDS, LinkReader, sysfs_address
from plugin.driver.nvml.loading.root import HOST, library_below
from plugin.driver.nvml.loading.trust import FAULTS, driver_version, gpu_count, gpu_uuid, reason, without_doubles
from plugin.driver.nvml.loading.without_cuda import keep_cuda_out
from plugin.driver.nvml.state import read_states
from plugin.driver.snapshot import GpuFacts, LostGpu, Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from plugin.driver.gpu_state import GpuState
    from plugin.driver.reading import Reading, XidEvent

_Answer = TypeVar("_Answer")
_SONAME = "libnvidia-ml.so.1"
_CUDA_S = 5.0  # tens of milliseconds, but for a disk that hangs
_VERSIONED = re.compile(r"/libnvidia-ml\.so\.(\d+\.[\d.]+)(?: \(deleted\))?$")

_HINTS = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "install the driver's user-space libraries (libnvidia-ml.so.1)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the kernel module: modprobe nvidia",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the loaded module is of another version than the libraries: "
    "compare /sys/module/nvidia/version with `ldconfig -p`, then reload the module or reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "the daemon must be able to open /dev/nvidiactl",
    pynvml.NVML_ERROR_INSUFFICIENT_POWER: "check the GPU's power cables",
}


def _not_ready(error: BaseException) -> DriverNotReady:
    hint = _HINTS.get(getattr(error, "value", None), "see `dmesg | grep -i nvrm`")
    return DriverNotReady(f"nvml does not answer: {reason(error)}", hint)


def _supported(ask: Callable[[], _Answer]) -> _Answer | None:
    """Return None where this GPU or driver does not know the question; other errors are the GPU's."""
    try:
        return ask()
    except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
        return None


def _read_gpu(index: int) -> GpuFacts | LostGpu:
    uuid: str | None = None
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        uuid = gpu_uuid(handle)
        memory = _supported(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        is_cut = details.is_cut(handle)
        return GpuFacts(
            index=index,
            uuid=uuid,
            minor=int(pynvml.nvmlDeviceGetMinorNumber(handle)),
            pci_address=sysfs_address(pynvml.nvmlDeviceGetPciInfo(handle).busId),
            memory_bytes=(None if memory is None else int(memory.total))
            or None,  # no GPU has none: 0 says nothing either
            model=str(_supported(lambda: pynvml.nvmlDeviceGetName(handle)) or "unknown"),
            brand=details.brand(handle),
            compute_capability=details.compute_capability(handle),
            mig=details.mig_devices(handle) if is_cut else (),
            is_cut=is_cut,
            has_ecc=details.has_ecc(handle),
        )
    except FAULTS as error:
        return LostGpu(index, uuid, reason(error))


def _unload() -> None:
    """Unmap the library, and let pynvml forget it: it keeps one handle and its symbols for ever."""
    library = pynvml.nvmlLib
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    if library is not None:
        _ctypes.dlclose(library._handle)


class Follower(Protocol):
    """Who keeps something of a session's: called in its thread."""

    def session_begins(self) -> None:
        """Hear that the library is loaded and answers."""

    def session_ends(self) -> None:
        """Give back what the library lent: after this it is unloaded."""


class NoFollower:
    """Keeps nothing of a session."""

    def session_begins(self) -> None:
        """Do nothing."""

    def session_ends(self) -> None:
        """Do nothing."""


class NvmlSource:
    """NVML as a source of snapshots; `driver_root` is where the driver is installed."""

    def __init__(self, driver_root: Path = HOST, follower: Follower | None = None) -> None:
        self._driver_root = driver_root
        self._follower = follower or NoFollower()
        self._is_open = False
        self._links = LinkReader()
        self._watch: XidWatch | None = None
        self._links_active: dict[str, int | None] = {}  # as the last reading of each GPU had it
        self._happened: Callable[[], None] = lambda: None
        self._cuda = ("", "")  # of this driver version, this CUDA version

    def open(self) -> None:
        """Load the library and start a session."""
        keep_cuda_out()
        try:
            with library_below(self._driver_root):
                pynvml.nvmlInit()
        except FAULTS as error:
            _unload()
            raise _not_ready(error) from error
        self._is_open = True
        self._links = LinkReader()
        self._follower.session_begins()

    def snapshot(self) -> Snapshot:
        """Ask for every GPU by index; one that does not answer is lost, the others are not affected."""
        try:
            version, count = driver_version(), gpu_count()
        except FAULTS as error:
            raise _not_ready(error) from error
        answers = without_doubles([_read_gpu(index) for index in range(count)])
        gpus = tuple(answer for answer in answers if isinstance(answer, GpuFacts))
        return Snapshot(
            driver_version=version,
            gpus=gpus,
            lost=tuple(answer for answer in answers if isinstance(answer, LostGpu)),
            cuda_version=self._cuda_version(version),
            links=self._links.read(gpus),
        )

    def _cuda_version(self, driver: str) -> str:
        """Return the CUDA version, asked for once for each driver: it takes a process where NVML does not know it."""
        if self._cuda[0] != driver:
            self._cuda = (driver, details.cuda_version() or self._ask_cuda())
        return self._cuda[1]

    def _ask_cuda(self) -> str:
        return details.spell_cuda_version(ask_version(path_of(self._driver_root), _CUDA_S) or 0)

    def read_health(self) -> dict[str, Reading]:
        """Ask every GPU for its condition; raises DriverNotReady when the driver as a whole does not answer."""
        try:
            readings = read_conditions()
        except FAULTS as error:
            raise _not_ready(error) from error
        active = {uuid: reading.links_active for uuid, reading in readings.items()}
        if any(self._links_active.get(uuid, links) != links for uuid, links in active.items()):
            self._links = LinkReader()  # what connects the GPUs is not what it was
            self._happened()
        self._links_active.update(active)
        return readings

    def watch_events(self, happened: Callable[[], None]) -> None:
        """Hear of XID errors from now on, until the session ends."""
        self._happened = happened
        self._watch = XidWatch(happened)
        self._watch.begin()

    def take_events(self) -> tuple[XidEvent, ...]:
        """Return the XID errors since the last time; raises DriverNotReady when none are heard of any more."""
        events = () if self._watch is None else self._watch.take()
        if any(event.xid in NVLINK_XIDS for event in events):
            self._links = LinkReader()
        return events

    def read_states(self) -> tuple[dict[str, GpuState], dict[str, str]]:
        """Return how the GPUs are set up, by UUID, and why a GPU does not tell; raises DriverNotReady."""
        try:
            return read_states()
        except FAULTS as error:
            raise _not_ready(error) from error

    def listen(self) -> None:
        """Keep XID errors from now on for `poll_events`, without a thread of its own."""
        self._watch = XidWatch(lambda: None)
        self._watch.register()

    def poll_events(self) -> tuple[XidEvent, ...]:
        """Return the XID errors since `listen` or the last time; raises DriverNotReady when they cannot be had."""
        return () if self._watch is None else self._watch.poll()

    def close(self) -> None:
        """End the session and unmap the library."""
        if not self._is_open:
            return
        self._is_open = False
        try:
            self._follower.session_ends()
            if self._watch is not None:
                self._watch.end()
            pynvml.nvmlShutdown()
        except FAULTS:
            pass  # the driver may be gone already: the session ends with the library
        finally:
            _unload()


def library_version(driver_root: Path = HOST) -> str | None:
    """Return the version of the library that a new session would load, or None.

    It is in the name of the file, so that it can be told when a library and a module of two versions refuse to work.
    """
    try:
        with library_below(driver_root):
            library = ctypes.CDLL(_SONAME)
    except (OSError, DriverNotReady):
        return None
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    finally:
        _ctypes.dlclose(library._handle)
    found = (_VERSIONED.search(line) for line in lines)
    return next((match.group(1) for match in found if match), None)
