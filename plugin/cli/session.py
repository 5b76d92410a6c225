"""What verbs that cut or set GPUs begin with: the node's configuration, and the driver for as long as they take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

from plugin.driver.nvml.loading.library import NvmlSource
from plugin.settings.load import Invocation, load
from plugin.system.bounded import call_within

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from typing_extensions import Self

    from plugin.settings.node_config import NodeConfig

Answer = TypeVar("Answer")


def config_of(path: Path | None) -> NodeConfig:
    """Return the node's configuration; raises ConfigError."""
    return load(Invocation(path, {}, os.environ)).config


class DriverSession:
    """The driver, open for as long as a verb takes; raises DriverNotReady, and NoAnswer where it hangs."""

    def __init__(self, config: NodeConfig, timeout_s: float) -> None:
        self._source = NvmlSource(config.settings.driver_root)
        self._timeout_s = timeout_s

    def __enter__(self) -> Self:
        self.ask(self._source.open)
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

    def reopen(self) -> None:
        """Begin again, after a change of the mode: that may have reset a GPU."""
        self._source.close()
        self.ask(self._source.open)

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Return what the driver answers in time."""
        return call_within(self._timeout_s, question, "nvml")
