"""Finds where a site names the folder of its CNI plugins by a key that containerd 2.4 has no more. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from provision.planning.engines.containerd.configuration import PLUGINS
from provision.planning.engines.files.engine_file import parse_toml, version_numbers
from provision.planning.render.errors import EngineConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# In files from version 3 on; those of version 2 containerd translates.
FORMER, PRESENT = "bin_dir", "bin_dirs"
GONE_IN: Final = "2.4"
_FIRST_WITH_PRESENT: Final = (2, 1)
_WRITTEN: Final = re.compile(rf"^[ \t]*[\"']?{FORMER}[\"']?[ \t]*=", re.MULTILINE)
_PLUGIN: Final = PLUGINS[3]


def former_cni_folders(texts: Mapping[str, str], engine_version: str) -> list[str]:
    """Return the files that have the former key alone, by path; none where the engine does not know the present one."""
    if version_numbers(engine_version) < _FIRST_WITH_PRESENT:
        return []
    found = [path for path, text in texts.items() if _WRITTEN.search(text) and FORMER in _cni(path, text)]
    return [] if _is_said(PRESENT, texts) else found


def _is_said(key: str, texts: Mapping[str, str]) -> bool:
    return any(key in _cni(path, text) for path, text in texts.items() if key in text)


def _cni(path: str, text: str) -> Iterable[str]:
    """Return the keys of the CNI table; those of a file that cannot be read are told elsewhere."""
    try:
        return parse_toml(path, text, show="").table("plugins").table(_PLUGIN).table("cni").values
    except EngineConfigError:
        return ()
