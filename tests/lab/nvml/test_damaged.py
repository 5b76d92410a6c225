"""Damaged machines: the library, built with sanitizers, must refuse them and touch nothing that is not its own."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING

import pytest

from lab.nvml import build, models
from lab.nvml.state import STATE_SIZE, write
from lab.nvml.text import encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SANITIZE = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-Wl,-z,undefs")
SUCCESS, UNKNOWN = 0, 999
TEXT = encode(models.with_mig(models.machine("a100-40gb", 2), 0, ["1g.5gb"])).encode()

INITIALISE = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
code = library.nvmlInit_v2()
device, uuid, count = ctypes.c_void_p(), ctypes.create_string_buffer(96), ctypes.c_uint()
if code == 0:
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
for index in range(count.value):
    library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device))
    library.nvmlDeviceGetUUID(device, uuid, 96)
print(code)
"""
PARSE = """
import ctypes, sys
check = ctypes.CDLL(sys.argv[1]).gpusim_check
check.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
texts = open(sys.argv[2], "rb").read().split(b"\\xff")
print(sum(1 for text in texts if check(text, len(text))), len(texts))
"""


@pytest.fixture(scope="module")
def library() -> Path:
    return build(extra_flags=SANITIZE)


@pytest.fixture
def run(library: Path, tmp_path: Path) -> Callable[[str], str]:
    """Run a program with the sanitized library and the state file of this test; return what it prints."""
    find = ["gcc", "-print-file-name=libasan.so"]
    sanitizer = subprocess.run(find, check=True, capture_output=True, text=True).stdout.strip()

    def run_program(program: str) -> str:
        env = {
            "PATH": os.environ["PATH"],
            "LD_PRELOAD": sanitizer,
            "ASAN_OPTIONS": "detect_leaks=0",
            "GPUSIM_STATE": str(tmp_path / "state"),
        }
        command = [sys.executable, "-c", program, str(library), str(tmp_path / "texts")]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120, env=env)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    return run_program


def _region(text: bytes, *, generation: int = 2, length: int | None = None, checksum: int | None = None) -> bytes:
    length = len(text) if length is None else length
    checksum = zlib.adler32(text) if checksum is None else checksum
    header = struct.pack("<8sQII", b"GPUSIM1\n", generation, length, checksum)
    return (header.ljust(64, b"\0") + text).ljust(STATE_SIZE, b"\0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("content", "code"),
    [
        pytest.param(_region(TEXT), SUCCESS, id="good"),
        pytest.param(_region(b""), SUCCESS, id="good and empty"),
        pytest.param(b"", UNKNOWN, id="empty file"),
        pytest.param(b"GPUSIM1\n", UNKNOWN, id="only a magic word"),
        pytest.param(_region(TEXT)[:1000], UNKNOWN, id="cut off"),
        pytest.param(b"\0" * STATE_SIZE, UNKNOWN, id="zeros"),
        pytest.param(_region(TEXT, generation=3), UNKNOWN, id="a writer died"),
        pytest.param(_region(TEXT, length=0xFFFFFFFF), UNKNOWN, id="length beyond the region"),
        pytest.param(_region(TEXT, checksum=1), UNKNOWN, id="wrong checksum"),
        pytest.param(_region(TEXT + b"nonsense"), UNKNOWN, id="an invalid line"),
        pytest.param(_region(b"x" * (STATE_SIZE - 64)), UNKNOWN, id="a line as long as the region"),
        pytest.param(_region(b"\n" * (STATE_SIZE - 64)), SUCCESS, id="nothing but line ends"),
        pytest.param(_region(TEXT + b"failure0.function=*\nfailure0.gpu=2147483647\n"), SUCCESS, id="GPU far away"),
        pytest.param(_region(TEXT + b"event0.gpu=4294967295\nevent0.sequence=1\n"), SUCCESS, id="event far away"),
    ],
)
def test_a_damaged_state_is_refused(content: bytes, code: int, run: Callable[[str], str], tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(content)
    assert run(INITIALISE) == str(code)


def _mutated(chance: random.Random) -> bytes:
    text = bytearray(TEXT[: chance.randrange(len(TEXT))] if chance.random() < 0.3 else TEXT)
    for _ in range(chance.randrange(1, 6)):
        at = chance.randrange(len(text) + 1)
        text[at : at + chance.randrange(4)] = chance.choice([b"0", b"=", b".", b"\n", b"gpu", b"9" * 30, b"\0", b"-"])
    return bytes(text).replace(b"\xff", b"")


@pytest.mark.slow
def test_mutated_texts_do_not_confuse_the_parser(run: Callable[[str], str], tmp_path: Path) -> None:
    chance = random.Random(20)
    (tmp_path / "texts").write_bytes(b"\xff".join(_mutated(chance) for _ in range(500)))
    write(tmp_path / "state", models.machine())
    refused, total = map(int, run(PARSE).split())
    assert total == 500
    assert 250 < refused <= 500, "most mutations break a line"
