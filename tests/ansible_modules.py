"""The archives that Ansible makes of modules, shared by the operators of tests, each of whom has a home of its own.

To make those of an apply takes some five seconds of processor. Their folder is named after the sources that they were
made of, so who has the same sources may have them, as it is between two runs of one person.
"""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

from lab.machine.folders import cache_dir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def shared_modules(cache: Path) -> Iterator[None]:
    """Have the archives that there are in a person's cache (``$XDG_CACHE_HOME``), and keep what is made meanwhile."""
    own, shared = (folder / "ansible-modules" for folder in (cache / "grapnel", cache_dir()))
    _copy(shared, own)
    try:
        yield
    finally:
        _copy(own, shared)


def _copy(source: Path, target: Path) -> None:
    for file in source.glob("*/*-none"):
        place = target / file.parent.name / file.name
        if place.exists():
            continue
        for folder in (target, place.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        beside = place.with_name(f"{place.name}.{os.getpid()}.new")
        shutil.copyfile(file, beside)
        beside.replace(place)
