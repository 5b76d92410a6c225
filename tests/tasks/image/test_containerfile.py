"""The image is what its Containerfile says; what is not understood is not passed over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tasks.errors import TaskError
from tasks.image import CONTAINERFILE
from tasks.image.containerfile import read_config

if TYPE_CHECKING:
    from pathlib import Path

BEGINNING = "FROM scratch\nADD root.tar /\n"


def test_the_image_is_not_run_as_root() -> None:
    config = read_config(CONTAINERFILE)

    assert config["User"] == "65532:65532"
    assert config["Entrypoint"] == ["/usr/bin/grapnel"]
    assert "PATH=/usr/sbin:/usr/bin:/sbin:/bin" in config["Env"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(f"{BEGINNING}RUN true\n", r":3: RUN is not understood", id="an instruction that needs an engine"),
        pytest.param("FROM debian:13\n", r":1: FROM is not understood", id="another base"),
        pytest.param("FROM scratch\nUSER 1\n", r"it has to begin with", id="no content"),
    ],
)
def test_what_cannot_be_done_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "Containerfile"
    file.write_text(text)

    with pytest.raises(TaskError, match=said):
        read_config(file)
