"""Boots an emulated machine, and runs commands in it through a port of its own: it has no network."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from lab.machine.command import DYING, run
from lab.machine.errors import CommandError
from lab.nodes.emulated import agent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.nodes.emulated.image import Image

BOOT_TIMEOUT_S: Final = 300.0
_TAIL_BYTES: Final = 3000
# What keeps apart the memory of kernel and programs would empty QEMU's table of addresses at each system call.
_APPEND: Final = "console=ttyAMA0 quiet nokaslr kpti=off mitigations=off"


class EmulatedMachine:
    """A machine that has booted."""

    def __init__(self, channel: socket.socket, console: Path) -> None:
        self._channel, self._console, self._rest = channel, console, b""

    def run(
        self, argv: Sequence[str], *, given: bytes = b"", timeout_s: float = 120, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """Run a command as root; `CommandError` unless it succeeds in time."""
        request = {"argv": list(argv), "input": base64.b64encode(given).decode(), "timeout": timeout_s}
        self._channel.settimeout(BOOT_TIMEOUT_S)
        self._channel.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self._line(timeout_s + BOOT_TIMEOUT_S))
        texts = [base64.b64decode(answer[name]).decode(errors="replace") for name in ("stdout", "stderr")]
        if check and answer["code"]:
            raise CommandError(f"{argv[0]} failed with status {answer['code']}", hint="".join(texts)[-_TAIL_BYTES:])
        return subprocess.CompletedProcess(list(argv), answer["code"], *texts)

    def sh(self, script: str, *, timeout_s: float = 120) -> str:
        """Run a script that must not fail; return what it prints."""
        return self.run(["sh", "-ec", script], timeout_s=timeout_s).stdout

    def wait_ready(self) -> None:
        """Wait until the agent answers; `CommandError` with the end of the console's text where it does not."""
        self._line(BOOT_TIMEOUT_S)

    def _line(self, timeout_s: float) -> bytes:
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._rest:
            self._channel.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                chunk = self._channel.recv(1 << 16)
            except TimeoutError:
                chunk = b""
            if not chunk:
                text = self._console.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
                raise CommandError("the emulated machine does not answer", hint=text)
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return line


@contextmanager
def emulated_machine(image: Image, *, files: Path | None = None, keeps: bool = False) -> Iterator[EmulatedMachine]:
    """Boot a machine with the folder ``files`` as its `/srv`, read-only, and switch it off at the end.

    What it writes to its disk is lost, unless it ``keeps`` that.
    """
    with tempfile.TemporaryDirectory(prefix="grapnel-emulated-") as folder:
        place, console = Path(folder) / "port", Path(folder) / "console"
        snapshot = "off" if keeps else "on"
        program = shutil.which("qemu-system-aarch64") or "qemu-system-aarch64"
        command = [
            *DYING, program, "-M", "virt", "-cpu", "cortex-a57", "-accel", "tcg,thread=multi", "-smp", "2",
            "-m", "1024", "-nodefaults", "-no-reboot", "-display", "none",
            "-kernel", str(image.kernel), "-initrd", str(image.ram_disk), "-append", _APPEND,
            "-serial", f"file:{console}",
            "-drive", f"file={image.disk},format=raw,if=none,id=disk,snapshot={snapshot}",
            "-device", "virtio-blk-pci,drive=disk",
            "-device", "virtio-serial-pci", "-chardev", f"socket,id=port,path={place},server=on,wait=off",
            "-device", f"virtserialport,chardev=port,name={agent.PORT}",
            *(() if files is None else _second_disk(files, Path(folder) / "files")),
        ]  # fmt: skip
        with (
            (Path(folder) / "said").open("w+b") as said,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=said, env={**os.environ, "TMPDIR": folder}
            ) as process,
        ):
            try:
                with _connect(place, process, said) as channel:
                    machine = EmulatedMachine(channel, console)
                    machine.wait_ready()
                    if files is not None:
                        machine.run(["mount", "-o", "ro", "/dev/vdb", "/srv"])
                    yield machine
            finally:
                process.terminate()  # QEMU writes what it has of the disk


def _second_disk(files: Path, disk: Path) -> tuple[str, ...]:
    """Return the arguments for a folder as a disk: to write what is in it to the first one would take as long again."""
    used = int(run(["du", "--summarize", "--block-size=1M", str(files)], timeout_s=60).stdout.split()[0])
    make = ["mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(files), str(disk), f"{2 * used + 16}M"]
    run(make, timeout_s=BOOT_TIMEOUT_S)
    drive = f"file={disk},format=raw,if=none,id=files,readonly=on"
    return ("-drive", drive, "-device", "virtio-blk-pci,drive=files")


def _connect(place: Path, process: subprocess.Popen[bytes], said: IO[bytes]) -> socket.socket:
    channel = socket.socket(socket.AF_UNIX)
    while process.poll() is None:
        try:
            channel.connect(str(place))
        except (FileNotFoundError, ConnectionRefusedError):
            time.sleep(0.05)
        else:
            return channel
    said.seek(0)
    raise CommandError("qemu-system-aarch64 has ended", hint=said.read().decode(errors="replace"))
