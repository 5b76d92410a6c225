"""Reads what is on the node of all that is declared. Changes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import stat
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from plugin.base.errors import DriftError, os_reason
from plugin.drift.model import Absent, File, Found, Unit
from plugin.drift.packages import package_lock_holder, read_packages
from plugin.system.durable import read_bounded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from plugin.drift.model import Declared
    from plugin.drift.packages import Ask

_MAX_SMALL = 64 * 1024
_MAX_MARKED = 1 << 20  # an engine's configuration has a few KiB
_MAX_FILE = 64 << 20  # of a file whose digest is taken
_BLOCK = 256 * 1024
_SYSTEMCTL = (
    "/usr/bin/systemctl",
    "show",
    "--property",
    "Id,LoadState,ActiveState,UnitFileState,StateChangeTimestampMonotonic",
)
_HOME = "usr/lib/grapnel"
_RUN = "var/lib/grapnel/driver/run.json"
_BACK = "back"
_OPEN_RUNS = ("running", "needs-reboot")
_EXCHANGE = "run/grapnel/kernel-module.json"
_RELEASED = "var/lib/grapnel/node/released.json"
_DRIVER = "proc/driver/nvidia"
_MINOR = re.compile(r"^Device Minor:\s*([0-9]{1,5})\s*$", re.MULTILINE)
_LEFT_TO_OTHERS = re.compile(r"^ModifyDeviceFiles: 0$", re.MULTILINE)


_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"}
_TIMEOUT_S = 30.0
_MAX_ANSWER = 1 << 20


def ask_program(command: tuple[str, ...]) -> str:
    """Return what a program prints, whatever it ends with; raises DriftError where it cannot be asked.

    Package managers end with an error where one of the packages is not there, which is an answer.
    """
    try:
        with subprocess.Popen(
            command,
            env=_ENVIRONMENT,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as process:
            late = threading.Event()
            limit = threading.Timer(_TIMEOUT_S, _end, (process, late))
            limit.daemon = True
            limit.start()
            try:
                answer = process.stdout.read(_MAX_ANSWER + 1) if process.stdout else b""
            finally:
                limit.cancel()
                if len(answer) > _MAX_ANSWER:
                    process.kill()
    except OSError as error:
        raise DriftError(f"{command[0]} cannot be started: {os_reason(error)}") from error
    pasted = shlex.join(command[:3])
    if late.is_set():
        raise DriftError(f"{pasted} …: no answer within {_TIMEOUT_S:g} s")
    if len(answer) > _MAX_ANSWER:
        raise DriftError(f"{pasted} …: an answer of more than {_MAX_ANSWER >> 20} MiB")
    return answer.decode("utf-8", "replace")


def _end(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    process.kill()


class Host:
    """The machine below `root`. `ask` runs its programs; `clock` is seconds since the boot, `now` the time of day."""

    def __init__(
        self,
        root: Path = Path("/"),
        ask: Ask = ask_program,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._root = root
        self._ask = ask
        self._clock = clock
        self.now = now

    def change_at_work(self) -> str:
        """Return what changes the node at the moment, "" where nothing does."""
        if self._last_run("state") in _OPEN_RUNS:
            return "a driver change has begun and not ended"
        if (self._root / _EXCHANGE).exists():
            return "the kernel module is being exchanged"
        if (self._root / _RELEASED).exists():
            return "the node's GPUs are out of service"
        holder = package_lock_holder(self._root)
        return f"packages are being changed by process {holder}" if holder is not None else ""

    def returned_since(self, record: Path) -> str:
        """Return that the former driver was brought back after the record was written, "" where it was not."""
        if self._last_run("verb") != _BACK:
            return ""
        try:
            is_later = (self._root / _RUN).stat().st_mtime > record.stat().st_mtime
        except OSError:
            return ""
        return "the former driver was brought back: grapnel apply says again what is declared" if is_later else ""

    def look(self, declared: Declared) -> Found:
        """Return what is there of what is declared; raises DriftError where that cannot be known."""
        return Found(
            packages=read_packages(declared.manager, [each.name for each in declared.packages], self._root, self._ask),
            files={each.path: self._file(each.path, each.mark) for each in declared.files},
            units=dict(self._units(declared.units)),
            module=self._small("sys/module/nvidia/version") if declared.module else "",
            software={part: self._small(f"{_HOME}/{part}/RELEASE") for part in declared.software},
            devices={path: self._is_device(path) for path in self._device_nodes()},
        )

    def _last_run(self, key: str) -> str:
        """Return what the last driver change says of itself, "" where there was none."""
        try:
            value = json.loads(self._small(_RUN) or "{}")[key]
        except (ValueError, RecursionError, KeyError, TypeError):
            return ""
        return value if isinstance(value, str) else ""

    def _small(self, path: str) -> str:
        try:
            return read_bounded(self._root / path, _MAX_SMALL).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def _file(self, path: str, mark: str) -> File | Absent:
        place = self._root / path.lstrip("/")
        try:
            found = _read(place)
            return replace(found, is_edited=is_edited(read_bounded(place, _MAX_MARKED), mark)) if mark else found
        except (FileNotFoundError, NotADirectoryError):
            return Absent(_folder_time(place))
        except OSError as error:
            raise DriftError(f"{path} cannot be read: {os_reason(error)}") from error

    def _units(self, names: Sequence[str]) -> Iterator[tuple[str, Unit]]:
        if not names:
            return
        blocks = self._ask((*_SYSTEMCTL, "--", *names)).split("\n\n")
        shown = [dict(line.split("=", 1) for line in block.splitlines() if "=" in line) for block in blocks]
        if not any("Id" in each for each in shown):
            raise DriftError("systemd does not say how its units are", "try: systemctl show")
        for each in shown:
            if each.get("LoadState") != "not-found" and "Id" in each:
                yield (
                    each["Id"],
                    Unit(
                        each.get("ActiveState", ""),
                        each.get("UnitFileState", ""),
                        self._at(each.get("StateChangeTimestampMonotonic", "")),
                    ),
                )

    def _at(self, microseconds: str) -> int | None:
        """Return the time of day of an instant of the monotonic clock; 0 is never."""
        if not microseconds.isdecimal() or not int(microseconds):
            return None
        return int(self.now() - self._clock() + int(microseconds) / 1_000_000)

    def _device_nodes(self) -> list[str]:
        """Return the device nodes that the driver's GPUs need, none where it leaves them to another program."""
        if _LEFT_TO_OTHERS.search(self._small(f"{_DRIVER}/params")):
            return []
        try:
            addresses = sorted(os.listdir(self._root / _DRIVER / "gpus"))
        except OSError:
            return []
        texts = [self._small(f"{_DRIVER}/gpus/{each}/information") for each in addresses]
        minors = [match[1] for text in texts if (match := _MINOR.search(text))]
        return ["/dev/nvidiactl", *(f"/dev/nvidia{minor}" for minor in minors)] if minors else []

    def _is_device(self, path: str) -> bool:
        try:
            return stat.S_ISCHR((self._root / path.lstrip("/")).stat().st_mode)
        except OSError:
            return False


def _read(place: Path) -> File:
    """Return a regular file's state; for a device or pipe, which may never end, FileNotFoundError."""
    descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(str(place))
        digest, left = hashlib.sha256(), _MAX_FILE
        while left > 0 and (block := file.read(_BLOCK)):
            digest.update(block)
            left -= len(block)
    return File(
        sha256=digest.hexdigest(),
        mode=f"{status.st_mode & 0o7777:04o}",
        owner=f"{status.st_uid}:{status.st_gid}",
        changed=int(max(status.st_mtime, status.st_ctime)),
    )


def _folder_time(place: Path) -> int | None:
    try:
        return int(place.parent.stat().st_mtime)
    except OSError:
        return None


# Tells whether a file that grapnel wrote for an engine was edited since, by its mark. The mark: contract
# `docs/contracts/declared`.

_MARK = re.compile(rb"^# managed by grapnel.*\n# sha256 of the rest: ([0-9a-f]{64})\n", re.MULTILINE)


def is_edited(content: bytes, mark: str) -> bool:
    """Tell whether `grapnel apply` takes a file for edited; `mark` says where the mark stands, "start" or "end".

    Above one that stands before the end, others write what they like. A file without a mark is somebody else's: it is
    kept, and overwritten.
    """
    found = _MARK.search(content)
    if found is None:
        return False
    is_moved = mark == "start" and found.start() > 0
    return is_moved or found.group(1).decode() != hashlib.sha256(content[found.end() :]).hexdigest()
