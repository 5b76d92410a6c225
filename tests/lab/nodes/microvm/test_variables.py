"""The store of a firmware's variables; that firmware reads it is shown by the machine that is started with it."""

from __future__ import annotations

import struct

import pytest

from lab.machine.errors import LabError
from lab.nodes.microvm.variables import write_variables

BEGIN = 72 + 28
EMPTY = bytes(48) + struct.pack("<H", 72) + bytes(BEGIN - 50) + b"\xff" * 4096


def test_variables_lie_behind_the_header_and_everything_else_stays() -> None:
    written = write_variables(EMPTY, b"owner", [b"owner", b"other"], "\\linux.efi", "quiet")

    assert len(written) == len(EMPTY)
    assert written[:BEGIN] == EMPTY[:BEGIN]
    assert written[BEGIN : BEGIN + 2] == b"\xaa\x55"
    assert (written.count(b"owner"), written.count(b"other")) == (3, 1)  # PK, KEK and db
    assert "quiet".encode("utf-16-le") in written


def test_a_store_that_has_variables_already_is_refused() -> None:
    once = write_variables(EMPTY, b"owner", [b"owner"], "\\linux.efi", "")

    with pytest.raises(LabError, match="not empty"):
        write_variables(once, b"owner", [b"owner"], "\\linux.efi", "")
