"""The arena sees nothing of what other tests do to the same machine meanwhile."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.runtime_hook.attack.arena import others_mounts
from tests.runtime_hook.attack.rounds import Scene

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.runtime_hook.attack.rounds import Ground

TEMPORARY = tempfile.gettempdir()


@pytest.fixture
def engines_mount() -> Iterator[Path]:
    """A file system that another test has mounted."""
    with tempfile.TemporaryDirectory(prefix="grapnel-engine-") as folder:
        subprocess.run(["mount", "-t", "tmpfs", "engine", folder], check=True)
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", folder], check=True)


def test_mounts_of_other_tests_are_left_last_first_and_what_we_are_in_stays() -> None:
    places = ["/", "/proc", "/run/netns/a", f"{TEMPORARY}/ours", f"{TEMPORARY}/e", f"{TEMPORARY}/e/rootfs"]

    left = others_mounts(places, (f"{TEMPORARY}/ours/world/", f"{TEMPORARY}/ours/driver/"))

    assert left == [f"{TEMPORARY}/e/rootfs", f"{TEMPORARY}/e", "/run/netns/a"]


@pytest.mark.functional
def test_an_engines_mount_is_left_by_the_arena_alone(ground: Ground, engines_mount: Path) -> None:
    (only,) = ground.play(Scene("an honest image"))

    assert (only.outcome, only.breaches) == ("done", []), only.text
    assert engines_mount.is_mount()
