"""For all tests: how long hypothesis looks, what failures tell, and what is looked at only when it is asked for."""

from __future__ import annotations

import gc
import signal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling

from tasks.suites import names_mark

if TYPE_CHECKING:
    from collections.abc import Iterable

    from xdist.remote import Producer


class Marked(Protocol):
    """A test, as far as its marks are looked at."""

    @property
    def path(self) -> Path: ...

    def get_closest_marker(self, name: str) -> object: ...


# A shell starts what runs in its background with Ctrl-C ignored, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]
JOURNEY = "tests/journey"
STAGES = ("functional", "nodes", "e2e")  # marks of tests that have a stage of their own

# A failed assertion of a module that tests share tells what it found, as one of a test does.
_SHARED = (each.stem for each in Path(__file__).parent.iterdir() if each != Path(__file__))
pytest.register_assert_rewrite(*(f"tests.{name}" for name in _SHARED))

# It judges what is found, never how long a busy machine took to find it.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", settings.get_profile("patient"), max_examples=5)
settings.load_profile("patient")


# Tens of thousands of tests are made in one go, and all of them are kept: to look for garbage among them meanwhile, in
# vain, took a third of the time in which they are collected.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage again, in what tests make."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the nodes that may take longest, so that the workers of a run end together."""
    require_named_marks(items)
    items.sort(key=_limit_s, reverse=True)


def require_named_marks(items: Iterable[Marked]) -> None:
    """Accept no mark from elsewhere than its own file: `make test` would not find the test."""
    marked = {(item.path, mark) for item in items for mark in STAGES if item.get_closest_marker(mark) is not None}
    if unnamed := sorted(f"{path}: {mark}" for path, mark in marked if not names_mark(path, mark)):
        raise pytest.UsageError(f"marks that their file does not name: {', '.join(unnamed)}")


def _limit_s(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout") if item.get_closest_marker("nodes") else None
    return float(marker.args[0]) if marker is not None else 0


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Give the files that share a node to one worker: it is made once, and brought to its declaration once."""
    return ByNode(config, log) if config.getoption("dist") == "loadfile" else None


class ByNode(LoadFileScheduling):
    """Hands whole files out, and those of the journey whose tests take ``gpu_node`` together."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        return JOURNEY if file in self._sharing() else file

    @cache  # noqa: B019 - one scheduler lives as long as the run
    def _sharing(self) -> frozenset[str]:
        paths = (ROOT / JOURNEY).glob("test_*.py")
        return frozenset(str(path.relative_to(ROOT)) for path in paths if "gpu_node" in path.read_text())


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let somebody ask for the nodes of every system."""
    text = "change drivers on nodes of every system that the lab knows, not only on one for each package manager"
    parser.addoption("--all-systems", action="store_true", help=text)
