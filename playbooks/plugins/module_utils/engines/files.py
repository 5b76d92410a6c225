"""Finds the files that engines read on a node. What they mean is the planner's business.

Read as text: a node's Python may have no TOML parser.
"""

from __future__ import annotations

import os
import re
from itertools import chain, islice
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.engines.containerd_imports import (
    read_base_specs,
    read_imports,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.of_kubernetes import config_of, files_of
from ansible_collections.grapnel.node.plugins.module_utils.engines.table import CONTAINERD, CRIO, DISTRIBUTIONS, ENGINES
from ansible_collections.grapnel.node.plugins.module_utils.files.leftovers import is_leftover

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_LIMIT_BYTES = 256 * 1024
# Folders of OCI hook files that CRI-O and Podman read by themselves; CRI-O's configuration may name others.
_HOOK_FOLDERS = ("/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d")
_HOOK_SUFFIX = ".json"
_MAX_HOOK_FOLDERS = 6
_MAX_HOOK_FILES = 32  # of one folder
_COMMENT = re.compile(r"#[^\n]*")
_HOOKS_DIR = re.compile(r"""\bhooks_dir["']?\s*=\s*\[([^\]]*)\]""")
_ABSOLUTE = re.compile(r"""["'](/[^"'\n]*)["']""")
# What a plan always follows from, whether it is there or not.
KNOWN = frozenset(
    path
    for each in ENGINES.values()
    for path in (*([each.main] if each.main else []), *each.watched, *each.ours, *each.marked)
)


def find_files(host: Host) -> list[str]:
    """Return the paths of the files that engines read beside those that are `KNOWN`."""
    folders = [each.drop_ins for each in ENGINES.values() if each.drop_ins]
    drop_ins = [f"{folder}/{name}" for folder in folders for name in host.names(folder) if not is_leftover(name)]
    return [*chain(*read_imports(host).values()), *files_of(host), *drop_ins]


def find_base_specs(host: Host, found: list[str]) -> list[str]:
    """Return the base specifications of others that are named in files that were found."""
    return [path for path in read_base_specs(host, [CONTAINERD.main, *found]) if path not in KNOWN]


def settings_of(host: Host, engine: str, texts: Mapping[str, str]) -> list[str]:
    """Return the paths of an engine's settings in the order in which they count; ``texts`` are those they will have."""
    row = ENGINES.get(engine)
    if row is CONTAINERD:
        return [row.main, *chain(*read_imports(host, texts).values())]
    if engine in DISTRIBUTIONS:
        settings = DISTRIBUTIONS[engine].settings
        more = [f"{settings}.d/{name}" for name in host.names(f"{settings}.d")] if settings else []
        # What k0s has merged below /run is made of the others.
        return [settings, *more, *(path for path in files_of(host) if not path.startswith("/run/"))]
    if row is None or not row.main:
        return []
    return [row.main, *(f"{row.drop_ins}/{name}" for name in (host.names(row.drop_ins) if row.drop_ins else ()))]


def folder_of(host: Host, name: str) -> str:
    """Return the folder of an engine's settings, or of what a distribution writes; empty where there is none."""
    if name in DISTRIBUTIONS:
        return config_of(host, name).rpartition("/")[0]
    return ENGINES[name].folder if name in ENGINES else ""


def hook_files(host: Host) -> Iterator[str]:
    """Paths of the hook files that CRI-O and Podman read, of many the first."""
    for folder in islice(dict.fromkeys([*_HOOK_FOLDERS, *_folders_of_crio(host)]), _MAX_HOOK_FOLDERS):
        names = [name for name in host.names(folder) if name.endswith(_HOOK_SUFFIX)]
        yield from (f"{folder}/{name}" for name in names[:_MAX_HOOK_FILES])


def _folders_of_crio(host: Host) -> Iterator[str]:
    """Folders that CRI-O's files call ``hooks_dir``: which one counts is the planner's business."""
    for path in settings_of(host, CRIO.name, {}):
        text = _COMMENT.sub("", host.read_text(path, _LIMIT_BYTES) or "")
        for listed in _HOOKS_DIR.findall(text):
            yield from (os.path.normpath(found) for found in _ABSOLUTE.findall(listed))
