"""musl's path file and ldconfig's folder: written where needed, once, and nothing else is touched."""

from __future__ import annotations

import pytest

from runtime_hook.container.operations.loaderpaths import CONF_FOLDER, CONF_NAME, ListCompatFolder, ListMuslFolder
from tests.runtime_hook.recording import DEVICE, FILE, FOLDER, LINK, RecordingSyscalls

COMPAT = "/usr/local/cuda/compat"
CONF = f"{CONF_FOLDER}/{CONF_NAME}"
PATH_FILE = "/etc/ld-musl-x86_64.path"


def image(**files: bytes) -> RecordingSyscalls:
    syscalls = RecordingSyscalls()
    for folder in ("/etc", CONF_FOLDER):
        syscalls.add(folder, FOLDER)
    for path, content in files.items():
        syscalls.add(path, FILE, content)
    return syscalls


@pytest.mark.parametrize(
    ("before", "is_used", "after", "calls"),
    [
        pytest.param(None, True, b"/usr/local/cuda/compat\n", 1, id="used for the first time"),
        pytest.param(b"/usr/local/cuda/compat\n", True, b"/usr/local/cuda/compat\n", 0, id="used again"),
        pytest.param(b"/usr/local/cuda/compat\n", False, b"", 1, id="not used any more"),
        pytest.param(b"", False, b"", 0, id="still not used"),
        pytest.param(None, False, None, 0, id="never used"),
    ],
)
def test_one_file_tells_ldconfig(*, before: bytes | None, is_used: bool, after: bytes | None, calls: int) -> None:
    syscalls = image(**({} if before is None else {CONF: before}))
    note = ListCompatFolder(COMPAT, is_used, "because").apply(syscalls)
    assert syscalls.contents.get(CONF) == after
    assert len(syscalls.calls) == calls
    assert note == ("CUDA forward compatibility: because" if is_used else "")


def test_an_image_without_the_folder_reads_no_such_file() -> None:
    syscalls = RecordingSyscalls()
    ListCompatFolder(COMPAT, is_used=True, reason="because").apply(syscalls)
    assert syscalls.calls == []


@pytest.mark.parametrize("mode", [LINK, FOLDER, DEVICE])
def test_what_stands_in_the_way_is_not_replaced(mode: int) -> None:
    syscalls = image()
    syscalls.add(CONF, mode, target="/etc/shadow")
    syscalls.add(PATH_FILE, mode, target="/etc/shadow")
    with pytest.raises(OSError, match="the image has"):
        ListCompatFolder(COMPAT, is_used=True, reason="because").apply(syscalls)
    with pytest.raises(OSError, match="the image has"):
        ListMuslFolder("/usr/lib64", "x86_64").apply(syscalls)
    assert syscalls.calls == []


def test_an_enormous_path_file_is_left_alone() -> None:
    with pytest.raises(OSError, match="larger than 64 KiB"):
        ListMuslFolder("/usr/lib64", "x86_64").apply(image(**{PATH_FILE: b"/lib:" * 20000}))


def test_musl_gets_a_path_file_only_where_it_needs_one() -> None:
    syscalls = image()
    ListMuslFolder("/usr/lib", "x86_64").apply(syscalls)
    assert syscalls.calls == []
    for _ in range(2):
        ListMuslFolder("/usr/lib64", "x86_64").apply(syscalls)
    assert syscalls.contents[PATH_FILE] == b"/lib:/usr/local/lib:/usr/lib\n/usr/lib64\n"
    assert len(syscalls.calls) == 1
