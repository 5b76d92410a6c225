"""Encodes and decodes a node's record, for an annotation or the state file: JSON in one form.

The contract is ``docs/contracts/node-state``.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec

from provision.base import strict_json
from provision.base.strict_json import MalformedError
from provision.cluster.errors import RecordError
from provision.declaration.spec.model import GpuInterface
from provision.rollout.model import ChangeKind, Phase, Record

SCHEMA: Final = "grapnel.dev/node-state/v1alpha1"
MAX_REASON: Final = 2000  # characters; all annotations of an object share 256 KiB, and people read this one
_LONGEST_S: Final = 31_536_000  # a phase may take days, but no year
_LIMIT_BYTES: Final = 256 << 10
# Far enough from the ends of what a datetime can say that every limit can be added to a moment.
_EARLIEST, _LATEST = datetime(2000, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)

# The pattern says for JSON schema what ``tz`` and `RecordDocument` say for msgspec: with a zone, in a year that can be.
_MOMENT: Final = "^2[01][0-9]{2}-.*(Z|[+-][0-9]{2}:[0-9]{2})$"
Moment = Annotated[datetime, msgspec.Meta(tz=True, extra_json_schema={"pattern": _MOMENT})]


# What msgspec does not write into the schema by itself: that the keys are phases.
_PHASES: Final = {"propertyNames": {"enum": [phase.value for phase in Phase]}}
Took = Annotated[
    dict[Phase, Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]], msgspec.Meta(extra_json_schema=_PHASES)
]


LabelText = Annotated[str, msgspec.Meta(max_length=317)]  # a prefix of 253 characters, a slash, a name of 63
# A boot is compared, and handed to Ansible: a node may write its own record, and must not write templates there.
MAX_WHO: Final = 200  # characters
Who = Annotated[str, msgspec.Meta(max_length=MAX_WHO)]  # a person, as they call themselves: shown, and nothing else
Boot = Annotated[str, msgspec.Meta(pattern="^[0-9a-f-]{0,64}$")]


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
    took: Took = {}
    tainted: bool = False
    is_touched: bool = False
    origin_change: str | None = None
    returning: bool = False
    unrelated: bool = False
    ailment: str = ""
    because_of: str = ""
    retry: bool = False
    requested: bool = False
    opted_out: Annotated[tuple[LabelText, ...], msgspec.Meta(max_length=8)] = ()
    kind: ChangeKind = ChangeKind.DRIVER
    boot: Boot = ""
    interface: GpuInterface | None = None
    origin_interface: GpuInterface | None = None
    back_for: Who = ""
    upgraded_from: str = ""

    def __post_init__(self) -> None:
        for moment in (self.began, self.since):
            if not _EARLIEST <= moment < _LATEST:
                raise ValueError(f"{moment:%Y-%m-%d} is not a plausible date of an upgrade")


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
        took={phase: min(seconds, _LONGEST_S) for phase, seconds in record.took.items()},
        tainted=record.is_tainted,
        is_touched=record.is_touched,
        origin_change=record.origin_change,
        returning=record.is_returning,
        unrelated=record.is_unrelated,
        ailment=_presentable(record.ailment),
        because_of=record.because_of,
        retry=record.retry,
        requested=record.is_requested,
        opted_out=record.opted_out,
        kind=record.kind,
        boot=record.boot,
        interface=record.interface,
        origin_interface=record.origin_interface,
        back_for=_presentable(record.back_for)[:MAX_WHO],
        upgraded_from=record.upgraded_from,
    )


def record_of(document: RecordDocument) -> Record:
    """Return what was written down, texts cut as they are for writing: a node may write its own record."""
    return Record(
        phase=document.phase,
        target=document.target,
        origin=document.origin,
        began=document.began,
        since=document.since,
        was_cordoned=document.was_cordoned,
        reason=_presentable(document.reason),
        failed_in=document.failed_in,
        took=document.took,
        is_tainted=document.tainted,
        is_touched=document.is_touched,
        origin_change=document.origin_change,
        is_returning=document.returning or document.phase is Phase.ROLLBACK,
        is_unrelated=document.unrelated,
        ailment=_presentable(document.ailment),
        because_of=document.because_of,
        retry=document.retry,
        is_requested=document.requested,
        opted_out=document.opted_out,
        kind=document.kind,
        boot=document.boot,
        interface=document.interface if document.kind is ChangeKind.INTERFACE else None,
        origin_interface=document.origin_interface if document.kind is ChangeKind.INTERFACE else None,
        back_for=document.back_for,
        upgraded_from=document.upgraded_from,
    )


def encode_record(record: Record) -> str:
    """Return the record as one line of JSON; equal records give equal text."""
    return msgspec.json.encode(document_of(record)).decode()


def decode_record(text: str | bytes) -> Record:
    """Return the record that was written down; raises RecordError, which says what is wrong with it."""
    try:
        data = text if isinstance(text, bytes) else text.encode()
        return record_of(strict_json.decode(data, RecordDocument, limit_bytes=_LIMIT_BYTES))
    except (MalformedError, UnicodeEncodeError) as error:
        raise RecordError(str(error)) from error


def _presentable(reason: str) -> str:
    text = reason.encode(errors="replace").decode()  # output of programs may hold bytes that are no text
    return text if len(text) <= MAX_REASON else text[: MAX_REASON - 1] + "…"
