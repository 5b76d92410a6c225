"""Fixtures of the hook's tests: a driver tree, a configuration for it, container roots."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.runtime_hook.containers import Container, make_root
from tests.runtime_hook.drivertree import DriverTree
from tests.runtime_hook.podman import Podman

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled stub libraries, made once."""
    return tmp_path_factory.mktemp("objects")


@pytest.fixture
def driver(tmp_path: Path, objects: Path) -> DriverTree:
    """Make a Debian host with two GPUs (needs root for its device nodes)."""
    return DriverTree(tmp_path / "host", objects).build()


@pytest.fixture(scope="session")
def pristine_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a Debian-like container root that nothing runs in."""
    return make_root(tmp_path_factory.mktemp("pristine"))


@pytest.fixture
def root(tmp_path: Path, pristine_root: Path) -> Path:
    """Make a container root of this test's own."""
    return Path(shutil.copytree(pristine_root, tmp_path / "root", symlinks=True))


@pytest.fixture
def configure(tmp_path: Path) -> Callable[..., list[str]]:
    """Write a hook configuration; returns the hook's arguments that make it count."""

    def write(**settings: Any) -> list[str]:
        path = tmp_path / "hook.json"
        content = {"inventory": str(tmp_path / "run/inventory.json"), "log": "none", **settings}
        path.write_text(json.dumps(content))
        path.chmod(0o644)
        return ["--config", str(path), "--root", str(tmp_path / "host")]

    return write


@pytest.fixture
def container(
    tmp_path: Path, root: Path, driver: DriverTree, configure: Callable[..., list[str]]
) -> Callable[..., Container]:
    """Make a container on a host with the driver; ``settings`` are the hook's configuration."""
    numbers = itertools.count()
    assert driver.root.exists()

    def make(command: list[str], settings: dict[str, Any] | None = None, **options: Any) -> Container:
        arguments = configure(**(settings or {}))
        folder = tmp_path / f"bundle{next(numbers)}"
        return Container(folder, root, command, hook_arguments=arguments, **options)

    return make


@pytest.fixture
def podman(root: Path, driver: DriverTree) -> Iterator[Podman]:
    """A Podman on a host with the driver; its run root must have a path of at most 50 characters."""
    with tempfile.TemporaryDirectory(prefix="grapnel-podman-") as folder:
        made = Podman(Path(folder), root, driver.root)
        try:
            yield made
        finally:
            made.close()
