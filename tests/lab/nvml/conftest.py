"""Machines with a simulated library, and processes that use them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from lab.nvml import install, models
from tests.lab.nvml.client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.nvml.machine import Machine


@pytest.fixture
def put(tmp_path: Path) -> Callable[[Machine], Path]:
    """Install a machine's library as that of driver 550.163.01."""

    def install_machine(machine: Machine) -> Path:
        return install(tmp_path / "lib", "550.163.01", machine)

    return install_machine


@pytest.fixture
def library(put: Callable[[Machine], Path]) -> Path:
    """Return the library of a machine with four A100."""
    return put(models.machine("a100-40gb", 4))


@pytest.fixture
def start() -> Iterator[Callable[[Path], Client]]:
    """Start processes that have initialised NVML; they end with the test."""
    with ExitStack() as stack:

        def start_client(library: Path) -> Client:
            client = stack.enter_context(Client(library))
            client("nvmlInit()")
            return client

        yield start_client


@pytest.fixture
def nvml(library: Path, start: Callable[[Path], Client]) -> Client:
    """Return a process that has initialised NVML on the machine with four A100."""
    return start(library)
