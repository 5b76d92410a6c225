"""Tells ordinary runtimes from injectors, for all engines alike: our handler inherits only from an ordinary one.

A handler that inherits NVIDIA's wrapper has two injectors, and theirs listens to the image's environment. It has many
names (``nvidia-container-runtime``, the same with ``.cdi``, ``.legacy``, ``.experimental``, ``.real``, below
``/usr/local/nvidia/toolkit``), and any of them can be behind a program of a name that nobody knows. So what is
inherited is what is known: runc, crun and youki, with a version or an architecture in the name at most.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_ORDINARY = re.compile(r"(?:runc|crun|youki)(?:[-._](?:v?[0-9][\w.+~-]*|amd64|x86_64|arm64|aarch64))?")
_HANDLER: Final = re.compile(r"""\bruntimes\.["']?([a-z0-9][a-z0-9-]{0,62})["']?[\].]""")
_USUAL_NAMES: Final = ("runc", "crun", "youki", "kata", "runsc")


def is_injector(values: Iterable[Any]) -> bool:
    """Tell whether anything that a runtime's settings say (a program, a path, a file) is NVIDIA's."""
    return any("nvidia" in each.casefold() for each in values if isinstance(each, str))


def is_ordinary(program: str) -> bool:
    """Tell whether a program, a name or a path, is known to do nothing but run containers."""
    return _ORDINARY.fullmatch(PurePosixPath(program).name) is not None and not is_injector([program])


def handlers_in_toml(text: str) -> Iterable[str]:
    """Return the names of handlers in a configuration that are no ordinary runtimes."""
    return (name for name in _HANDLER.findall(text) if not name.startswith(_USUAL_NAMES))


def is_ordinary_name(name: str) -> bool:
    """Tell whether a handler's name is that of a runtime that many nodes have."""
    return name in _USUAL_NAMES
