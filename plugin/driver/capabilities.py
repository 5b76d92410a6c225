"""The capability nodes of MIG devices, as the driver numbers them in /proc. A machine without them is no error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FILE = "driver/nvidia-caps/mig-minors"
_MOST = (1 << 20) - 1  # that the kernel has minors of one major
_MAX_DIGITS = 7
_WORDS = 2  # of a line: a name and its number
_MAX_BYTES = 1 << 20  # 32 GPUs of 8 GPU instances with 8 compute instances take 60 kB


def read_mig_minors(proc_root: Path) -> dict[str, int]:
    """Return name → minor of the device `nvidia-caps/nvidia-cap<minor>`.

    The file has lines such as `gpu0/gi1/ci0/access 12`; the number of the GPU is its minor.
    """
    try:
        with (proc_root / _FILE).open("rb") as file:
            lines = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split() for line in lines)
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == _WORDS and _is_minor(pair[1])}


def _is_minor(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS and int(text) <= _MOST
