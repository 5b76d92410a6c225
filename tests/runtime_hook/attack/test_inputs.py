"""What an author can put into the state, ``config.json`` and the environment: one line, never a traceback."""

from __future__ import annotations

import json
import os
import resource
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime_hook.containers import run_hook

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.functional

MEBIBYTE = 1 << 20
MEMORY_BYTES = 400 * MEBIBYTE  # address space: what an interpreter maps, and room for a configuration of 16 MiB
NVIDIA = [{"path": "/dev/nvidia0", "type": "c", "major": 4, "minor": 16}]
REFUSED, LET_PASS = 1, 0


def start(arguments: list[str], bundle: Path, **state: object) -> subprocess.CompletedProcess[bytes]:
    """Run the hook on a bundle; the process is this one, whose mount namespace it refuses to touch."""
    content = {"id": "c1", "pid": os.getpid(), "bundle": str(bundle), **state}
    return run_hook(["prestart", *arguments], json.dumps(content).encode(), preexec_fn=limit_memory)


def limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def assert_tidy(done: subprocess.CompletedProcess[bytes], status: int) -> None:
    """One printable line of bounded length on stderr when refused, nothing when not."""
    text = done.stderr.decode()
    assert done.returncode == status, text[:500]
    assert done.stdout == b""
    if status == LET_PASS:
        assert text == ""
        return
    assert text.startswith("grapnel-hook: ")
    assert text.endswith("\n")
    assert text[:-1].isprintable()
    assert len(text) < 3000
    assert "internal error" not in text


def deep(kind: bytes) -> bytes:
    return kind * 200_000


STATES = {
    "nothing": b"",
    "blanks": b" \n\t ",
    "no JSON": b"\x00\x01\x02",
    "bytes that are no UTF-8": b'{"id": "\xff\xfe"}',
    "a list": b"[]",
    "a number": b"1e999",
    "not a number": b"NaN",
    "lists in lists": deep(b"["),
    "objects in objects": deep(b'{"a":'),
    "a document cut short": b'{"id": "x", "pid": 1',
    "two documents": b'{"id":"x","pid":1,"bundle":"/"} {}',
    "no pid": b'{"id":"x","bundle":"/"}',
    "pid zero": b'{"id":"x","pid":0,"bundle":"/"}',
    "a negative pid": b'{"id":"x","pid":-1,"bundle":"/"}',
    "a pid of ten thousand digits": b'{"id":"x","pid":' + b"9" * 10_000 + b',"bundle":"/"}',
    "a pid of a thousand digits": b'{"id":"x","pid":' + b"9" * 1_000 + b',"bundle":"/nowhere"}',
    "a pid that is text": b'{"id":"x","pid":"1/../self","bundle":"/"}',
    "a relative bundle": b'{"id":"x","pid":1,"bundle":"etc"}',
    "a bundle with a NUL": b'{"id":"x","pid":1,"bundle":"/a\\u0000b"}',
    "a bundle with half a character": b'{"id":"x","pid":1,"bundle":"/\\ud800"}',
    "a bundle of a mebibyte": b'{"id":"x","pid":1,"bundle":"/' + b"a" * MEBIBYTE + b'"}',
    "an id with line ends": b'{"id":"a\\nPRIORITY=0\\u001b[2J","pid":1,"bundle":"/nowhere"}',
    "an id of a mebibyte": b'{"id":"' + b"a" * MEBIBYTE + b'","pid":1,"bundle":"/"}',
    "more than four mebibytes": b" " * (4 * MEBIBYTE + 1),
}


@pytest.mark.parametrize("name", STATES)
def test_a_malformed_state_is_refused(configure: Callable[..., list[str]], name: str) -> None:
    done = run_hook(["prestart", *configure()], STATES[name], preexec_fn=limit_memory)
    assert_tidy(done, REFUSED)


def test_no_stdin_at_all_is_refused(configure: Callable[..., list[str]]) -> None:
    done = run_hook(["prestart", *configure()], preexec_fn=lambda: os.close(0))
    assert_tidy(done, REFUSED)


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


CONFIGURATIONS: dict[str, Callable[[Path], object]] = {
    "missing": lambda path: path,
    "a folder": lambda path: path.mkdir(),
    "a FIFO": os.mkfifo,
    "a link to a FIFO": lambda path: (os.mkfifo(path.with_name("fifo")), path.symlink_to("fifo")),
    "a link to an endless file": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to a secret": lambda path: path.symlink_to("/etc/shadow"),
    "a link to kernel memory": lambda path: path.symlink_to("/proc/kmsg"),
    "a device": lambda path: os.mknod(path, 0o020666, os.makedev(1, 5)),
    "empty": lambda path: write(path, b""),
    "larger than sixteen mebibytes": lambda path: write(path, b" " * (16 * MEBIBYTE + 1)),
    "a sparse file of a tebibyte": lambda path: (write(path, b""), os.truncate(path, 1 << 40)),
    "lists in lists": lambda path: write(path, deep(b"[")),
    "objects in objects": lambda path: write(path, deep(b'{"process":')),
    "bytes that are no UTF-8": lambda path: write(path, b'{"process": {"env": ["A=\xff"]}}'),
    "an environment that is a text": lambda path: write(path, b'{"process": {"env": "A=B"}}'),
    "devices that are numbers": lambda path: write(path, b'{"linux": {"devices": [1, 2]}}'),
    "annotations that are lists": lambda path: write(path, b'{"annotations": {"a": []}}'),
    "a root with a NUL": lambda path: write(path, b'{"root": {"path": "/a\\u0000"}}'),
    "a number that is no JSON": lambda path: write(path, b'{"linux": Infinity}'),
}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_that_is_none_is_refused(
    configure: Callable[..., list[str]], tmp_path: Path, name: str
) -> None:
    CONFIGURATIONS[name](tmp_path / "config.json")
    done = start(configure(), tmp_path)
    assert_tidy(done, REFUSED)
    assert Path("/etc/shadow").read_bytes()[:8] not in done.stderr


ENVIRONMENTS: dict[str, tuple[list[str], int]] = {
    "a mebibyte of devices": (["NVIDIA_VISIBLE_DEVICES=" + "0," * (MEBIBYTE // 2)], REFUSED),
    "a mebibyte of one name": (["NVIDIA_VISIBLE_DEVICES=" + "a" * MEBIBYTE], REFUSED),
    "a mebibyte of commas": (["NVIDIA_VISIBLE_DEVICES=" + "," * MEBIBYTE], LET_PASS),
    "a NUL": (["NVIDIA_VISIBLE_DEVICES=0\0all"], REFUSED),
    "line ends": (["NVIDIA_VISIBLE_DEVICES=0\nPRIORITY=0\n\x1b[31m"], REFUSED),
    "half a character": (["NVIDIA_VISIBLE_DEVICES=\ud800"], REFUSED),
    "other writing systems' digits": (["NVIDIA_VISIBLE_DEVICES=\u0660,\uff10"], REFUSED),
    "a path": (["NVIDIA_VISIBLE_DEVICES=../../../etc/shadow"], REFUSED),
    "a number of a million digits": (["NVIDIA_VISIBLE_DEVICES=" + "9" * 1_000_000], REFUSED),
    "colons without end": (["NVIDIA_VISIBLE_DEVICES=" + ":" * MEBIBYTE], REFUSED),
    "a mebibyte of capabilities": (
        ["NVIDIA_VISIBLE_DEVICES=0", "NVIDIA_DRIVER_CAPABILITIES=" + "x," * (MEBIBYTE // 2)],
        REFUSED,
    ),
    "ten thousand variables": ([f"V{number}=x" for number in range(10_000)], LET_PASS),
    "a variable without a value": (["NVIDIA_VISIBLE_DEVICES"], LET_PASS),
    "a variable without a name": (["=all", "="], LET_PASS),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_a_bomb_in_the_environment_is_told_in_one_line(
    configure: Callable[..., list[str]], driver: object, tmp_path: Path, name: str
) -> None:
    assert driver
    variables, status = ENVIRONMENTS[name]
    (tmp_path / "config.json").write_text(json.dumps({"process": {"env": variables}}))
    assert_tidy(start(configure(entitlement="env"), tmp_path), status)


ANNOTATIONS: dict[str, dict[str, str]] = {
    "a bomb": {"grapnel.dev/allocation": "GPU-x," * 100_000},
    "another writing": {"grapnel.dev/allocation": "\ud800\u202e\x00"},
    "nested without end": {"io.kubernetes.cri-o.Annotations": "[" * 100_000, "grapnel.dev/allocation": "x"},
    "half a character inside": {"io.kubernetes.cri-o.Annotations": '{"grapnel.dev/allocation": "\\ud800"}'},
    "half a character around": {"io.kubernetes.cri-o.Annotations": "\ud800"},
}


@pytest.mark.parametrize("name", ANNOTATIONS)
def test_an_annotation_never_breaks_the_hook(
    configure: Callable[..., list[str]], driver: object, tmp_path: Path, name: str
) -> None:
    assert driver
    (tmp_path / "config.json").write_text(json.dumps({"annotations": ANNOTATIONS[name]}))
    done = start(configure(), tmp_path)
    assert_tidy(done, done.returncode)
    assert done.returncode in {REFUSED, LET_PASS}


ROOTS: dict[str, Any] = {
    "the host's": "/",
    "a way back to the host's": "/usr/../",
    "half a character": "/\ud800",
    "missing": "/nowhere",
    "a file": "/etc/passwd",
    "too long": "/" + "a/" * 5000,
}


@pytest.mark.parametrize("name", ROOTS)
def test_a_root_that_is_none_is_refused(
    configure: Callable[..., list[str]], driver: object, tmp_path: Path, name: str
) -> None:
    assert driver
    content = {"root": {"path": ROOTS[name]}, "process": {"env": ["NVIDIA_VISIBLE_DEVICES=all"]}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    with subprocess.Popen(["unshare", "--mount", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.write(b"\n")
        other.stdin.flush()
        other.stdout.read(1)  # it is in its own mount namespace
        done = start(configure(entitlement="env"), tmp_path, pid=other.pid)
        other.stdin.close()
    assert_tidy(done, REFUSED)
    assert b"root" in done.stderr
