"""Gives zypper a configuration of its own that names no locks, so that nothing is unlocked and locked again."""

from __future__ import annotations

import re
import shutil
import tempfile
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_CONFIGURATION = "/etc/zypp/zypp.conf"
_NAME = "zypp.conf"
_RUN = "/run"
_LOCKS_SETTING = re.compile(r"^[ \t#]*locksfile\.path\b.*\n?", re.MULTILINE)
_SECTION = re.compile(r"^\[main\][ \t]*$", re.MULTILINE)


def write_without_locks(host: Host, folder: str) -> None:
    """Write the machine's configuration, but for its locks, into a folder."""
    settings = _LOCKS_SETTING.sub("", host.read_text(_CONFIGURATION) or "[main]")
    own = f"[main]\nlocksfile.path = {folder}/no-locks"
    text = _SECTION.sub(lambda _: own, settings, count=1)
    host.path(f"{folder}/{_NAME}").write_text(f"{text}\n", encoding="utf-8")


@contextmanager
def without_locks(host: Host) -> Iterator[list[str]]:
    """Return the words of a zypper that knows no locks, as long as its configuration is there."""
    host.path(_RUN).mkdir(exist_ok=True)
    place = tempfile.mkdtemp(prefix="grapnel-zypper-", dir=host.path(_RUN))
    folder = f"{_RUN}/{place.rpartition('/')[2]}"
    try:
        write_without_locks(host, folder)
        yield ["env", f"ZYPP_CONF={folder}/{_NAME}", "zypper"]
    finally:
        shutil.rmtree(place, ignore_errors=True)
