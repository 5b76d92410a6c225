"""Sites for the tests of booted nodes: own state folder, own name, destroyed whatever happens."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from lab.nodes import Node, NodeSpec, Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        made = Site(f"t{os.getpid()}")
        try:
            yield made
        finally:
            made.destroy()


@pytest.fixture
def fresh_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Return a site of one test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made = Site(f"f{os.getpid()}")
    yield made
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    made.destroy()


@pytest.fixture(scope="module")
def node(site: Site) -> Node:
    return site.up(NodeSpec("n1", gpus=2, driver_module="550.163.01"))
