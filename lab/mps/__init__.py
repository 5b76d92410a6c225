"""A simulated `nvidia-cuda-mps-control`, and of systemd what starts and ends its units: real processes, real sockets.

The programs are single files for any Python 3.9, so that they can be put on a node of the lab as well.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = Path(__file__).parent
CONTROL, SERVER, CLIENT = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "mps-client"
_PROGRAMS = {CONTROL: "control.py", SERVER: "server.py", CLIENT: "client.py"}
_TOOLS = {"systemd-run": "systemd.py", "systemctl": "systemd.py"}


class Installed(NamedTuple):
    """Where the programs are. `tools` has systemd's; what they started is noted in the folder `units` beside them."""

    root: Path
    control: Path
    client: Path
    tools: Path


def install(root: Path) -> Installed:
    """Put the programs below `root`, as a driver's package puts them below `/`, and systemd's beside them."""
    tools = root / "systemd"
    _put(tools, _TOOLS)
    programs = install_programs(root)
    return Installed(root, programs / CONTROL, programs / CLIENT, tools)


def install_programs(root: Path) -> Path:
    """Put MPS's own programs alone below `root`: for a node, which has a real systemd. Returns their folder."""
    programs = root / "usr/bin"
    _put(programs, _PROGRAMS)
    return programs


def remove_programs(root: Path) -> None:
    """Take MPS's programs away again."""
    for name in _PROGRAMS:
        (root / "usr/bin" / name).unlink(missing_ok=True)


def _put(folder: Path, files: Mapping[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, source in files.items():
        shutil.copyfile(_HERE / "programs" / source, folder / name)
        (folder / name).chmod(0o755)
