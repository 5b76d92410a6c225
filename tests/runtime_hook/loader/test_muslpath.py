"""musl's path file: the folder is searched afterwards, and everything that was searched before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime_hook.container.operations.loaderpaths import DEFAULT_PATH, add_folder

FOLDER = "/usr/lib64"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, DEFAULT_PATH + b"\n/usr/lib64\n", id="without a file musl's own folders come first"),
        pytest.param(b"/lib\n/usr/lib\n", b"/lib\n/usr/lib\n/usr/lib64\n", id="lines are kept"),
        pytest.param(b"/lib:/opt/lib", b"/lib:/opt/lib\n/usr/lib64\n", id="colons are kept"),
        pytest.param(b"/lib:", b"/lib:/usr/lib64\n", id="after a colon nothing is needed between"),
        pytest.param(b"", b"/usr/lib64\n", id="an empty file lists nothing"),
        pytest.param(b"/lib\0/usr/lib64", b"/lib\n/usr/lib64\n", id="musl reads up to a NUL"),
        pytest.param(b"/usr/lib64x:/x/usr/lib64", b"/usr/lib64x:/x/usr/lib64\n/usr/lib64\n", id="whole names count"),
        pytest.param(b"/lib\n/usr/lib64\n/usr/lib", None, id="a listed folder changes nothing"),
        pytest.param(b"/usr/lib64/:/lib", None, id="with a slash at its end too"),
    ],
)
def test_a_folder_is_added_once(before: bytes | None, after: bytes | None) -> None:
    assert add_folder(before, FOLDER) == after


def test_a_folder_of_musls_own_path_needs_no_file() -> None:
    assert add_folder(None, "/usr/lib") is None


@given(before=st.none() | st.binary(max_size=200))
def test_whatever_the_file_holds_the_second_run_changes_nothing(before: bytes | None) -> None:
    once = add_folder(before, FOLDER)
    if once is not None:
        assert add_folder(once, FOLDER) is None
        assert once.startswith((DEFAULT_PATH if before is None else before).partition(b"\0")[0])
