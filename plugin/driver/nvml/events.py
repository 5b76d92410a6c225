"""XID errors as the driver tells them: one event set per session, with every GPU that has such events.

The waiting is the library's own, bounded, and in a thread of its own: looks and questions are not held up by it. A wait
cannot be ended from outside, so that the end of a session may take as long as one.
"""

from __future__ import annotations

import ctypes
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pynvml

from plugin.base.errors import DriverNotReady
from plugin.driver.nvml.loading.trust import FAULTS, gpu_count, gpu_uuid, reason
from plugin.driver.reading import XidEvent

if TYPE_CHECKING:
    from collections.abc import Callable

_WAIT_MS = 1000
_PAUSE_S = 0.1  # a GPU with an error a millisecond is not looked at as often
_MAX_AT_ONCE = 1024
_NO_INSTANCE = 0xFFFFFFFF
_MAX_KEPT = 4096  # while they are not taken


class XidWatch:
    """The events since the session began. `happened` is called in the watch's thread, after something did."""

    def __init__(self, happened: Callable[[], None]) -> None:
        self._happened = happened
        self._set: Any = None
        self._uuids: dict[int | None, str] = {}
        self._lock = threading.Lock()
        self._events: dict[XidEvent, None] = {}  # in order, and each once: it may take long until they are taken
        self._broken = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Register every GPU, and wait for events in a thread until the end."""
        self.register()
        if self._uuids:
            self._thread = threading.Thread(target=self._listen, name="nvml-events", daemon=True)
            self._thread.start()

    def register(self) -> None:
        """Register every GPU; one that is lost or has no such events is left out."""
        try:
            self._set = pynvml.nvmlEventSetCreate()
            count = gpu_count()
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound):
            return  # a driver without events
        except FAULTS as error:
            self._broken = reason(error)
            return
        for index in range(count):
            with suppress(*FAULTS):
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = gpu_uuid(handle)
                pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, self._set)
                self._uuids[_address(handle)] = uuid

    def take(self) -> tuple[XidEvent, ...]:
        """Return what has happened since the last time; raises DriverNotReady when the waiting broke."""
        with self._lock:
            events, self._events = tuple(self._events), {}
        if self._broken and not events:
            raise DriverNotReady(f"nvml has no events: {self._broken}")
        return events

    def poll(self) -> tuple[XidEvent, ...]:
        """Return what has happened so far, without a thread; raises DriverNotReady when events cannot be had."""
        if self._set is None:
            raise DriverNotReady("nvml has no events")
        for _ in range(_MAX_AT_ONCE):
            if not self._wait(0):
                break
        return self.take()

    def end(self) -> None:
        """Wait for the thread and forget the set: nothing of the library is in use afterwards."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._set is not None:
            with suppress(*FAULTS):
                pynvml.nvmlEventSetFree(self._set)
            self._set = None

    def _listen(self) -> None:
        while not self._stopping.is_set() and not self._broken:
            if self._wait(_WAIT_MS):
                for _ in range(_MAX_AT_ONCE):
                    if not self._wait(0):
                        break
                self._happened()
                self._stopping.wait(_PAUSE_S)
        if self._broken:
            self._happened()

    def _wait(self, timeout_ms: int) -> bool:
        """Wait for one event; whether there was one."""
        try:
            data = pynvml.nvmlEventSetWait_v2(self._set, timeout_ms)
        except pynvml.NVMLError_Timeout:
            return False
        except FAULTS as error:
            self._broken = reason(error)
            return False
        if data.eventType == pynvml.nvmlEventTypeXidCriticalError:
            instances = (_instance(data.gpuInstanceId), _instance(data.computeInstanceId))
            event = XidEvent(self._uuid(data.device), int(data.eventData), *instances)
            with self._lock:
                if len(self._events) < _MAX_KEPT:
                    self._events[event] = None
        return True

    def _uuid(self, device: Any) -> str:
        """Return the UUID from memory where it can be: a GPU that has fallen off the bus does not tell it any more."""
        known = self._uuids.get(_address(device))
        if known is None:
            with suppress(*FAULTS):
                return str(pynvml.nvmlDeviceGetUUID(device))
        return known or ""


def _instance(number: int) -> int | None:
    """Return the number of an instance, None for what NVML says where an event is of none."""
    return None if number == _NO_INSTANCE else int(number)


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
