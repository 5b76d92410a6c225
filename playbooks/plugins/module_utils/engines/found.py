"""Finds the container engines, and what they report about their own configuration.

How a configuration is written and swapped belongs to `configuration`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.grapnel.node.plugins.module_utils.engines.containerd_imports import read_imports
from ansible_collections.grapnel.node.plugins.module_utils.engines.docker import takes_gpus
from ansible_collections.grapnel.node.plugins.module_utils.engines.of_kubernetes import (
    client_of,
    read_distributions,
    silence_of,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import (
    CONTAINERD,
    CTR,
    DISTRIBUTIONS,
    DOCKER,
    ENGINES,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.engines.table import Engine
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 20.0
_VERSION = re.compile(r"\b[0-9]+\.[0-9]+\.[0-9]+\b")
_ORIGINALS = "/var/lib/grapnel/originals.json"  # as removal.originals has it, which brings what changes a node
_ORIGINALS_LIMIT_BYTES = 16 * 1024 * 1024
_TEXT_LIMIT_BYTES = 256 * 1024
_VALUE = re.compile(r"""["']([^"'\n]{4,})["']""")  # of a file: what stands in quotes
_QUOTED = re.compile(r"""["'`]([^"'`]+)["'`]""")  # of a message
_CRI_PLUGIN = re.compile(r"^io\.containerd\.(?:grpc\.v1\s+cri|cri\.v1\s+\w+)\b.*\serror\s*$", re.MULTILINE)


def read_engines(host: Host) -> dict[str, Any]:
    """Return the facts ``engines``; None for those that are not installed."""
    plain = {name: _read_engine(host, each) for name, each in ENGINES.items() if name not in DISTRIBUTIONS}
    return {**plain, **read_distributions(host)}


def read_engine_holds(host: Host) -> list[str]:
    """Return the facts ``engine_holds``, none where the record is damaged: whatever would change the node says that."""
    try:
        return [str(name) for name in json.loads(host.read_text(_ORIGINALS, _ORIGINALS_LIMIT_BYTES) or "{}")["held"]]
    except (ValueError, LookupError, TypeError, RecursionError):
        return []


def find_engine(host: Host, engine: Engine) -> str | None:
    """Return the path of an engine's program, None when it is not there."""
    return host.find_command(engine.programs[0])


def _read_engine(host: Host, engine: Engine) -> dict[str, Any] | None:
    binary = find_engine(host, engine)
    if binary is None:
        return None
    version = _VERSION.search(host.run([binary, "--version"], _TIMEOUT_S).stdout)
    return {
        "binary": binary,
        "version": version.group() if version else "",
        "config_error": _config_error(host, engine, binary),
        **({"imports": read_imports(host)} if engine is CONTAINERD else {}),
        **({"takes_gpus": takes_gpus(host)} if engine is DOCKER else {}),
    }


def _config_error(host: Host, engine: Engine, binary: str) -> str | None:
    named = engine.main if engine.main in engine.question else engine.folder
    if not engine.question or not host.path(named).exists():
        return None
    parsed = host.run([binary, *engine.question], _TIMEOUT_S)
    return complaint_of(engine, parsed, secret_texts(host.path(engine.folder)))


def complaint_of(engine: Engine, parsed: Finished, secret: list[str]) -> str | None:
    """Return what an engine objects to in its configuration, which one that is too old cannot be asked.

    ``secret`` are texts of which nothing may be quoted.
    """
    if parsed.return_code == 0 or (engine.too_old and engine.too_old in parsed.stderr):
        return None
    return without_quotes(parsed.complaint, secret)


def secret_texts(folder: Path) -> list[str]:
    """Return the texts of files of a folder, and below it, that not everybody may read."""
    texts = []
    for below, _, names in os.walk(folder):
        for place in (Path(below, name) for name in names):
            with contextlib.suppress(OSError):
                status = place.lstat()
                is_read = stat.S_ISREG(status.st_mode) and status.st_size < _TEXT_LIMIT_BYTES
                if is_read and not status.st_mode & stat.S_IROTH:
                    texts.append(place.read_text(encoding="utf-8", errors="replace"))
    return texts


def without_quotes(complaint: str, secret: list[str]) -> str:
    """Return a message without what it quotes of secret texts: a parser may name the value that it stumbles over."""
    values = {match.group(1) for text in secret for match in _VALUE.finditer(text)}
    for value in sorted(values, key=len, reverse=True):
        complaint = complaint.replace(value, "…")
    return _QUOTED.sub(
        lambda match: "…" if any(match.group(1) in text for text in secret) else match.group(), complaint
    )


def has_containerd(engine: str) -> bool:
    """Tell whether an engine is a containerd, its own or a distribution's."""
    return engine == CONTAINERD.name or engine in DISTRIBUTIONS


def containerd_silence(host: Host, engine: str = CONTAINERD.name) -> str | None:
    """Return why containerd does not answer, None when it does; it may only need more time."""
    silence = silence_of(host, engine) if engine in DISTRIBUTIONS else None
    if silence is not None:
        return silence
    listed = _list_plugins(host, engine)
    return listed.complaint if listed.return_code else None


def containerd_flaw(host: Host, engine: str = CONTAINERD.name) -> str | None:
    """Return why a containerd that answers does not work for a kubelet, None when it does.

    containerd comes up without its CRI plugin when that plugin's table is wrong, or names a file that is not there.
    """
    if _CRI_PLUGIN.search(_list_plugins(host, engine).stdout):
        see = DISTRIBUTIONS[engine].units[0] if engine in DISTRIBUTIONS else "containerd"
        return f"the cri plugin of containerd could not be loaded, see journalctl -u {see}"
    return None


def _list_plugins(host: Host, engine: str) -> Finished:
    found = next(filter(None, map(host.find_command, CTR)), None)
    client = client_of(host, engine) if engine in DISTRIBUTIONS else [found] if found else []
    return host.run([*client, "--timeout", "5s", "plugins", "ls"], _TIMEOUT_S) if client else Finished(0)
