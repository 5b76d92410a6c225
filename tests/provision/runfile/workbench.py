"""A folder in which runfiles are declared and converted."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lab.runfile import SmallDriver
from provision.declaration.spec.model import Runfile
from provision.planning.supply.runfile.errors import RunfileError
from provision.planning.supply.runfile.store import Converted, RunfileStore

if TYPE_CHECKING:
    from pathlib import Path

VERSION = "550.54.15"


@dataclass(frozen=True)
class Workbench:
    folder: Path

    @property
    def store(self) -> RunfileStore:
        return RunfileStore(self.folder / "cache")

    def write(self, content: bytes) -> Runfile:
        """Write a file, and return it as it is declared."""
        place = self.folder / "driver.run"
        place.write_bytes(content)
        return Runfile(path=str(place), sha256=hashlib.sha256(content).hexdigest())

    def convert(self, driver: SmallDriver | None = None, compression: str = "xz") -> Converted:
        return self.store.convert(self.write((driver or SmallDriver(VERSION)).content(compression)))

    def refused(self, content: bytes, **declared: str) -> str:
        """Return what is said of a file that is no good; nothing of it is kept."""
        with pytest.raises(RunfileError) as caught:
            self.store.convert(
                Runfile(**{"path": str(self.folder / "driver.run"), "sha256": self.digest_of(content)} | declared)
            )
        assert caught.value.hint
        assert [path.name for path in (self.folder / "cache").iterdir()] == [".lock"]
        return caught.value.message

    def digest_of(self, content: bytes) -> str:
        return self.write(content).sha256


def bench_content() -> bytes:
    return SmallDriver(VERSION).content()
