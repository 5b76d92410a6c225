"""Encodes and decodes a pause, for an annotation of the lease or the state file: JSON on one line.

The contract is ``docs/contracts/pause``. Whatever is there pauses: a text that is no such JSON, as an administrator
writes it with kubectl, is the reason.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from provision.base import strict_json
from provision.base.strict_json import MalformedError
from provision.cluster.record import Moment
from provision.rollout.interface.pause import Pause

PAUSE: Final = "grapnel.dev/pause"  # annotation of the lease
SCHEMA: Final = "grapnel.dev/pause/v1alpha1"
MAX_TEXT: Final = 400  # characters of a reason
SOMEBODY: Final = "somebody"
_LIMIT_BYTES: Final = 16 << 10

Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


class PauseDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Who wants no further node to begin, since when, and why. Unknown keys are ignored."""

    schema: Literal["grapnel.dev/pause/v1alpha1"]
    by: Text
    since: Moment | None = None
    reason: Text = ""


def encode_pause(pause: Pause) -> str:
    """Return the pause as one line of JSON."""
    return msgspec.json.encode(document_of(pause)).decode()


def document_of(pause: Pause) -> PauseDocument:
    """Return the pause as it is written down; texts of unusual length are cut."""
    return PauseDocument(schema=SCHEMA, by=_cut(pause.by), since=pause.since, reason=_cut(pause.reason))


def decode_pause(text: str) -> Pause:
    """Return the pause that was written down, whatever it says."""
    try:
        document = strict_json.decode(text.encode(errors="replace"), PauseDocument, limit_bytes=_LIMIT_BYTES)
    except MalformedError:
        return Pause(by=SOMEBODY, reason=_cut(text.strip()))
    return _pause_of(document)


def as_pause(document: PauseDocument | None) -> Pause | None:
    """Return the pause of a state file, if it has one."""
    return None if document is None else _pause_of(document)


def _pause_of(document: PauseDocument) -> Pause:
    return Pause(by=document.by, since=document.since, reason=document.reason)


def _cut(text: str) -> str:
    shown = text.encode(errors="replace").decode()
    return shown if len(shown) <= MAX_TEXT else shown[: MAX_TEXT - 1] + "…"
