"""What answers inside of an emulated machine, and in which order its RAM disk loads modules."""

from __future__ import annotations

import base64
import json
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
