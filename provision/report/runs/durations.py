"""Remembers how long the steps and phases of a project took, for whoever watches the next run. Bounded."""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from provision.base import strict_json
from provision.base.errors import GrapnelError
from provision.base.regular_file import read_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from provision.report.runs.model import RunReport

STEPS: Final = 400
MAX_BYTES: Final = 256 * 1024
WHOLE: Final = "the whole node"
SCHEMA: Final = "grapnel.dev/durations/v1alpha1"
NOTHING_KNOWN: Final[Mapping[str, float]] = MappingProxyType({})
_NAME: Final = 200


class _Remembered(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds by step, those that were seen last at the end."""

    schema: Literal["grapnel.dev/durations/v1alpha1"] = SCHEMA
    seconds: dict[str, float] = {}


@dataclass(frozen=True, slots=True)
class Durations:
    """The file of a project, in the folder of its runs."""

    folder: Path

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / "durations.json"

    def read(self) -> Mapping[str, float]:
        """Return seconds by step, none where nothing is remembered or can be read."""
        with contextlib.suppress(OSError, GrapnelError, msgspec.MsgspecError, ValueError):
            read = strict_json.decode(read_regular(self.path, MAX_BYTES), _Remembered, limit_bytes=MAX_BYTES)
            return {name: seconds for name, seconds in read.seconds.items() if 0 <= seconds < float("inf")}
        return {}

    def update(self, report: RunReport) -> None:
        """Remember what a run took. That it cannot be written is no failure of the run."""
        latest = {total.name[:_NAME]: total.median_seconds for total in report.steps}
        whole = sorted(one.seconds for one in report.nodes if one.is_good and one.changes and one.seconds)
        if whole:
            latest[WHOLE] = whole[len(whole) // 2]
        if not latest:
            return
        kept = {name: seconds for name, seconds in self.read().items() if name not in latest}
        last = dict([*kept.items(), *latest.items()][-STEPS:])
        with contextlib.suppress(OSError):
            self._write(msgspec.json.encode(_Remembered(seconds=last)))

    def _write(self, text: bytes) -> None:
        """Replace the file as a whole; two runs may end at once."""
        new = self.path.with_name(f".durations-{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text)
            new.replace(self.path)
        finally:
            new.unlink(missing_ok=True)
