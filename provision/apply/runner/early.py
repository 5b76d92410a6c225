"""Starts Ansible once for two things: to read the inventory, and to gather the facts that follow from it.

Half a second of every start of Ansible are its imports. So who wants both starts `early_program`: a fork of it is
ansible-inventory, and the process itself waits until it is told which playbook to run. It is then the process that
ansible-playbook would have been, with the same arguments, environment, output and marker; ansible-runner watches a
shell that waits for its end. Where anything else is asked of it than it was started for, it is not used.

What it reads: on standard input one line of JSON (``command``, ``environment``, ``output``); it ends when the pipe
does, before that line or after it. What it writes: the inventory on standard output and error, its status on a
descriptor.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
import uuid
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from provision.apply.runner.environment import build_environment, callback_variables
from provision.declaration.fleet.ansible import run_program

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PROGRAM: Final = Path(__file__).with_name("early_program.py")
_CHUNK_BYTES: Final = 256 * 1024
# Tells ansible-runner, whose process it is, how the playbook has ended; without a word, as of a killed grapnel, badly.
_WAIT: Final = 'read -r status <"$0"; exit "${status:-1}"'


@dataclass(slots=True)
class EarlyAnsible:
    """Ansible for one inventory and for the first run that only reads; every other run starts its own."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _waiting: EarlyProcess | None = None
    _is_used: bool = False

    def read_inventory(
        self, command: Sequence[str], *, directory: Path, environ: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run ansible-inventory as `run_program` does, and keep what it was forked from for `take`."""
        beside = Path(sys.executable).with_name(Path(command[0]).name)
        if self._is_used or command[0] != str(beside) or not beside.with_name("ansible-playbook").is_file():
            return run_program(command, directory=directory, environ=environ, timeout_s=timeout_s)
        self._is_used = True
        process = EarlyProcess(command, directory, environ)
        try:
            done = process.read_inventory(time.monotonic() + timeout_s)
        except BaseException:
            process.end()
            raise
        if done is None:
            process.end()
            raise subprocess.TimeoutExpired(list(command), timeout_s)
        if done.returncode:
            process.end()
        else:
            self._waiting = process
        return done

    def take(self, environment: Mapping[str, str]) -> EarlyProcess | None:
        """Return the process for a run with these variables, None where a new one has to be started."""
        with self._lock:
            process, self._waiting = self._waiting, None
        if process is not None and not process.suits(environment):
            process.end()
            return None
        return process


class EarlyProcess:
    """One process that has Ansible imported, and what it was started with."""

    def __init__(self, command: Sequence[str], directory: Path, environ: Mapping[str, str]) -> None:
        self.marker = uuid.uuid4().hex
        self._command, self._directory = tuple(command), directory
        own = build_environment(environ, {}, marker=self.marker, executables=Path(sys.executable).parent)
        self._environment = {**environ, **own, **callback_variables(environ)}
        self._ended, write = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(PROGRAM), str(write), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(write,),
                cwd=directory,
                env=self._environment,
            )
        except BaseException:
            os.close(self._ended)
            raise
        finally:
            os.close(write)
        self._finalizer = weakref.finalize(self, _end, self._process)

    def read_inventory(self, deadline: float) -> subprocess.CompletedProcess[str] | None:
        """Return what ansible-inventory printed and its status, None where it has not ended in time."""
        assert self._process.stdout is not None  # for type checkers: they are pipes
        assert self._process.stderr is not None  # the same
        with open(self._ended, "rb", buffering=0) as ended:
            read = read_all((self._process.stdout, self._process.stderr, ended), deadline)
        if read is None:
            return None
        output, errors, status = (each.decode("utf-8", "replace") for each in read)
        code = int(status) if status else self._process.wait() or 1  # without a word, it has died
        return subprocess.CompletedProcess(self._command, code, output, errors)

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a run may have this process: alive, in the same folder, with the settings it was started with."""
        settings = {name: value for name, value in environment.items() if name.startswith("ANSIBLE_")}
        return (
            self._process.poll() is None
            and Path.cwd() == self._directory.absolute()
            and all(self._environment.get(name) == value for name, value in settings.items())
        )

    @contextlib.contextmanager
    def become(
        self, command: Sequence[str], environment: Mapping[str, str], output: Path, end: Path
    ) -> Iterator[list[str]]:
        """Have it run ansible-playbook; yields a command that ends when that does, with its status.

        ``end`` is the path of a pipe that is made for it.
        """
        os.mkfifo(end, 0o600)
        descriptor = os.open(end, os.O_RDWR | os.O_CLOEXEC)  # the pipe lasts as long as the run does
        told = threading.Thread(target=self._tell_end, args=(descriptor,), name=f"end-{self.marker[:8]}")
        asked = {"command": list(command), "environment": dict(environment), "output": str(output)}
        try:
            told.start()
            assert self._process.stdin is not None  # for type checkers: it is a pipe
            with contextlib.suppress(BrokenPipeError):  # it has died: its status tells
                self._process.stdin.write(json.dumps(asked).encode() + b"\n")
                self._process.stdin.flush()
            yield ["/bin/sh", "-c", _WAIT, str(end)]
        finally:
            if self._process.poll() is None:  # whoever waited for it was ended
                self._process.terminate()
            self.end()
            told.join()
            os.close(descriptor)

    def _tell_end(self, descriptor: int) -> None:
        status = self._process.wait()
        os.write(descriptor, b"%d\n" % (status if status >= 0 else 128 - status))

    def end(self) -> None:
        """End the process unless it has ended."""
        self._finalizer()


def read_all(streams: Sequence[IO[bytes]], deadline: float) -> list[bytes] | None:
    """Return what can be read of each stream until its end, None where that does not come in time."""
    parts = {stream.fileno(): bytearray() for stream in streams}
    with selectors.DefaultSelector() as selector:
        for descriptor in parts:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK_BYTES)
                parts[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
    return [bytes(part) for part in parts.values()]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let it end by itself, which removes Ansible's temporary folder, and kill it where it does not."""
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
