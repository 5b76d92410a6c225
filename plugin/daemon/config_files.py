"""Notices that files of the configuration have changed, where no SIGHUP is sent. Not here: reading them."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from plugin.settings.node_config import NodeConfig

_PACE_S = 5.0
Signature = tuple[tuple[str, int, int, int], ...]


def files_of(config: NodeConfig) -> Iterator[Path]:
    """Yield the files that decide how the daemon runs; those of device classes one by one."""
    if config.origin:
        yield Path(config.origin)
    if config.nvidia_config is not None:
        yield config.nvidia_config
    with suppress(OSError):
        yield from sorted(config.device_classes.iterdir())


def signature_of(config: NodeConfig) -> Signature:
    """Return what differs once a file was written, replaced, added or removed."""
    found = []
    for path in files_of(config):
        with suppress(OSError):
            seen = path.stat()
            found.append((str(path), seen.st_ino, seen.st_size, seen.st_mtime_ns))
    return tuple(found)


class ConfigFiles:
    """Calls `changed` after a change; `config` is the one that counts at the moment."""

    def __init__(self, config: Callable[[], NodeConfig], changed: Callable[[], None], pace_s: float = _PACE_S) -> None:
        self._config = config
        self._changed = changed
        self._pace_s = pace_s

    async def follow(self) -> None:
        """Look again and again. A change between two readings of the daemon's own counts as one."""
        before = signature_of(self._config())
        while True:
            await asyncio.sleep(self._pace_s)
            now = await asyncio.to_thread(signature_of, self._config())
            if now != before:
                before = now
                self._changed()
