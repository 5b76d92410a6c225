"""Builds the wheel of a release: the packages, the collection, the archives for nodes, the manual page."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.planning.supply.payload.build import build_payload
from provision.planning.supply.payload.libraries import CachedLibraries
from provision.planning.supply.payload.sources import find_sources
from provision.planning.supply.payload.store import cache_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
PAYLOAD, MAN = "GRAPNEL_WHEEL_PAYLOAD", "GRAPNEL_WHEEL_MAN"  # tasks/release/wheel_hook.py


def build_wheel(output: Path, scratch: Path) -> Path:
    """Build the wheel into the folder ``output``; ``scratch`` is a folder of its own that stays.

    Raises PayloadError; CalledProcessError for a tool that fails.
    """
    payload, man = scratch / "payload", scratch / "grapnel.1"
    sources = find_sources(ROOT)
    libraries = CachedLibraries(sources.requirements, cache_folder(os.environ) / "libraries", os.environ)
    build_payload(payload, sources, libraries)
    run_tool([sys.executable, "-P", "-m", "provision.cli.parsers.man", str(man)])
    build = [sys.executable, "-P", "-m", "hatchling", "build", "-t", "wheel", "-d", str(output)]
    run_tool(build, {PAYLOAD: str(payload), MAN: str(man)})
    return next(output.glob("*.whl"))


def run_tool(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a tool in the checkout. Raises CalledProcessError."""
    env = {**os.environ, **(environment or {})}
    subprocess.run(argv, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
