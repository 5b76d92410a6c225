"""How a node's record is written down, in an annotation or in the journal: JSON, once, in one form.

The contract is ``docs/contracts/node-state``.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal

import msgspec

from provision.cluster.errors import RecordError
from provision.rollout.model import Phase, Record

SCHEMA: Final = "grapnel.dev/node-state/v1alpha1"
MAX_REASON: Final = 2000  # characters; all annotations of an object share 256 KiB, and people read this one

# The pattern says for JSON schema what ``tz`` says for msgspec: a moment without a zone is none.
Moment = Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"pattern": "(Z|[+-][0-9]{2}:[0-9]{2})$"})]


class RecordDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """What is remembered of one node's upgrade. Unknown keys are ignored: a newer grapnel may say more."""

    schema: Literal["grapnel.dev/node-state/v1alpha1"]
    phase: Phase
    target: str
    origin: str = ""
    began: Moment
    since: Moment
    was_cordoned: bool = False
    reason: str = ""
    failed_in: Phase | None = None


def document_of(record: Record) -> RecordDocument:
    """Return the record as it is written down; a reason of unusual length is cut."""
    return RecordDocument(
        schema=SCHEMA,
        phase=record.phase,
        target=record.target,
        origin=record.origin,
        began=record.began,
        since=record.since,
        was_cordoned=record.was_cordoned,
        reason=_presentable(record.reason),
        failed_in=record.failed_in,
    )


def record_of(document: RecordDocument) -> Record:
    """Return what was written down."""
    return Record(
        phase=document.phase,
        target=document.target,
        origin=document.origin,
        began=document.began,
        since=document.since,
        was_cordoned=document.was_cordoned,
        reason=document.reason,
        failed_in=document.failed_in,
    )


def encode_record(record: Record) -> str:
    """Return the record as one line of JSON; equal records give equal text."""
    return msgspec.json.encode(document_of(record)).decode()


def decode_record(text: str | bytes) -> Record:
    """Return the record that was written down; raises RecordError, which says what is wrong with it."""
    try:
        return record_of(msgspec.json.decode(text, type=RecordDocument))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        message = str(error)
        raise RecordError(message[:1].lower() + message[1:]) from error


def _presentable(reason: str) -> str:
    text = reason.encode(errors="replace").decode()  # output of programs may hold bytes that are no text
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"
