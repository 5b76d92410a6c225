"""Parses what a node's daemon answers to ``release``: whether it let go of the GPUs, and who still holds one."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from provision.base import strict_json
from provision.base.printable import printable
from provision.base.strict_json import MalformedError
from provision.declaration.fleet.errors import AnswerError
from provision.declaration.fleet.facts import grammar

_LIMIT_BYTES: Final = 4 << 20
_LONGEST: Final = 128


class GpuHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has a GPU open; other fields of the answer are ignored."""

    pid: grammar.Pid
    command: str = ""
    unit: str | None = None
    pod_uid: grammar.Word | None = None

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "command", printable(self.command, limit=_LONGEST))
        msgspec.structs.force_setattr(self, "unit", printable(self.unit or "", limit=_LONGEST))


class ReleaseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The answer; without ``released`` the daemon did not let go."""

    released: bool
    holders: Annotated[tuple[GpuHolder, ...], Meta(max_length=16384)] = ()


def parse_release_result(data: object) -> ReleaseResult:
    """Parse a daemon's answer: bytes of JSON, or values that are parsed already.

    Raises `AnswerError`, whatever the data are, with the path of the first value that is wrong.
    """
    try:
        return strict_json.decode(strict_json.as_bytes(data), ReleaseResult, limit_bytes=_LIMIT_BYTES)
    except MalformedError as error:
        raise AnswerError(f"the node daemon's answer to release cannot be read: {error}") from error
