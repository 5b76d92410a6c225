"""What answers inside of an emulated machine, and in which order its RAM disk loads modules."""

from __future__ import annotations

import base64
import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from lab.nodes.emulated import agent, image

if TYPE_CHECKING:
    from pathlib import Path


def ask(*argv: str, given: bytes = b"", timeout: float = 10) -> dict[str, Any]:
    """Return an answer of the agent's, its texts decoded."""
    request = {"argv": argv, "input": base64.b64encode(given).decode(), "timeout": timeout}
    answer: dict[str, Any] = json.loads(agent.answer(json.dumps(request).encode()))
    return {"code": answer["code"]} | {name: base64.b64decode(answer[name]) for name in ("stdout", "stderr")}


@pytest.mark.parametrize(
    ("argv", "code", "stdout"),
    [
        (("cat",), 0, b"given\n"),
        (("sh", "-c", "echo said; exit 3"), 3, b"said\n"),
        (("/no/such/program",), 127, b""),
    ],
)
def test_a_command_is_run_and_what_it_says_is_answered(argv: tuple[str, ...], code: int, stdout: bytes) -> None:
    found = ask(*argv, given=b"given\n")

    assert (found["code"], found["stdout"]) == (code, stdout)


def test_a_command_that_does_not_end_is_ended_with_what_it_has_said() -> None:
    found = ask("sh", "-c", "echo said; exec sleep 1000", timeout=0.5)

    assert (found["code"], found["stdout"]) == (124, b"said\n")


def test_each_module_of_the_ram_disk_comes_after_those_that_it_needs(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko kernel/fs/mbcache.ko\n"
        "kernel/fs/jbd2/jbd2.ko:\n"
        "kernel/fs/mbcache.ko:\n"
        "kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio.ko\n"
        "kernel/drivers/virtio/virtio.ko:\n"
        "kernel/drivers/net/virtio_net.ko: kernel/drivers/virtio/virtio.ko\n"
    )

    assert [path.rpartition("/")[2] for path in image.in_order(tmp_path)] == [
        "virtio.ko",
        "virtio_blk.ko",
        "mbcache.ko",
        "jbd2.ko",
        "ext4.ko",
    ]


@pytest.mark.parametrize("is_same", [True, False])
def test_bytecode_is_made_by_a_python_of_the_machines_version_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_same: bool
) -> None:
    monkeypatch.setattr(image, "MACHINES_PYTHON", sys.version_info[:2] if is_same else (3, 5))
    (tmp_path / "good.py").write_text("x = 1\n")
    (tmp_path / "of_another_python.py").write_text("print 1\n")

    assert image.compile_here(tmp_path) is is_same
    assert [path.name.partition(".")[0] for path in tmp_path.glob("__pycache__/*")] == ["good"] * is_same
