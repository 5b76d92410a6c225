"""Keeps on the node which of the kubelet's settings are grapnel's, and what stood in their place before.

The record is written before what it is about, and read back from a node, which may say anything.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from provision.base.decoding import decoder_of

KUBELET_RECORD_PATH: Final = "/etc/grapnel/kubelet.json"
_Path = Annotated[str, Meta(pattern=r"^(/[^\x00-\x1f\x7f]+)?$(?!\n)", max_length=4096)]
_Key = Annotated[str, Meta(pattern="^[A-Za-z]{1,64}$")]
_Lines = Annotated[str, Meta(max_length=65_536)]


class Exchanged(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a key that grapnel has written, and those that were there before; None: there were none."""

    written: _Lines
    former: _Lines | None = None


class KubeletRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is grapnel's of a kubelet's settings: a file of its own, or keys of the kubelet's ``file``."""

    version: Literal[1] = 1
    unit: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9:_.@-]{0,127}\.service$(?!\n)")]
    drop_in: _Path = ""
    file: _Path = ""
    keys: dict[_Key, Exchanged] = {}


def render_record(record: KubeletRecord) -> str:
    """Return the text of the record's file."""
    return msgspec.json.format(msgspec.json.encode(record), indent=2).decode() + "\n"


def parse_record(text: str | None) -> KubeletRecord | None:
    """Return a record; None where there is none, or it is not one."""
    try:
        return None if text is None else decoder_of(KubeletRecord).decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return None
