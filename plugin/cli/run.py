"""`grapnel-node run`: puts the daemon together and runs it."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from plugin.config import find_config
from plugin.log import Journal, configure

if TYPE_CHECKING:
    from pathlib import Path


def _prepare_process() -> None:
    """Set what must be set before gRPC and asyncio are imported."""
    os.umask(0o077)
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log lines are not ours; errors arrive as exceptions
    # The daemon speaks over unix sockets only. asyncio imports OpenSSL wherever it is there, and does
    # without where it is not: 4 MiB per node (measured by bench/plugin.py).
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type] # None is how an import is made to fail


def run_daemon(config_path: Path | None, *, debug: bool) -> int:
    """Run until SIGTERM; returns the exit code."""
    config = find_config(config_path)
    configure(sys.stderr, debug=debug)
    _prepare_process()
    import asyncio  # noqa: PLC0415 - after _prepare_process

    from plugin.daemon import Daemon, Surroundings  # noqa: PLC0415 - after _prepare_process
    from plugin.kubelet.link import Timing  # noqa: PLC0415 - after _prepare_process
    from plugin.notify import notify  # noqa: PLC0415 - after _prepare_process
    from plugin.nvml.library import NvmlSource  # noqa: PLC0415 - after _prepare_process
    from plugin.nvml.telemetry import read_telemetry  # noqa: PLC0415 - after _prepare_process

    surroundings = Surroundings(
        source=NvmlSource,
        read_config=lambda: find_config(config_path),
        journal=Journal(),
        notify=notify,
        timing=Timing(),
        read_telemetry=read_telemetry,
    )
    asyncio.run(Daemon(config, surroundings).run())
    return 0
