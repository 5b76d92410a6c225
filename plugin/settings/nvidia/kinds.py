"""What a setting's value may be, as a text (flag, variable) and as a value of a file. Pure.

Texts are read as NVIDIA's plugin reads them: Go's words for booleans, commas between items of a list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

if TYPE_CHECKING:
    from collections.abc import Callable

Value = Union[str, bool, "tuple[str, ...]", "tuple[int, ...]"]

_TRUE = ("1", "t", "T", "true", "TRUE", "True")  # Go's strconv.ParseBool
_FALSE = ("0", "f", "F", "false", "FALSE", "False")
_DURATION = re.compile(r"-?([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+|0|infinite")  # Go's time.ParseDuration
_STEP = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ns|us|µs|ms|s|m|h)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class ValueKind:
    """Two ways to the same value; both raise ValueError, whose text says what the value must be."""

    from_text: Callable[[str], Value]
    from_document: Callable[[object], Value]
    is_list: bool = False
    is_switch: bool = False


def show(value: Value) -> str:
    """Return a value as a person would write it into a flag."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, tuple) else value


def _boolean_text(text: str) -> bool:
    if text not in _TRUE and text not in _FALSE:
        raise ValueError("must be true or false")
    return text in _TRUE


def _boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError("must be a text on one line")
    return value


def _path(value: object) -> str:
    if not isinstance(value, str) or not value.startswith("/") or not value.isprintable():
        raise ValueError("must be an absolute path")
    return value


def _duration(value: object) -> str:
    if not isinstance(value, str) or not _DURATION.fullmatch(value):
        raise ValueError('must be a duration such as "60s", or "infinite"')
    return value


def duration_s(text: str) -> float | None:
    """Return the seconds of a duration, None for one that never ends; a negative one is over at once."""
    if text == "infinite":
        return None
    steps = () if text.startswith("-") else _STEP.findall(text)
    return sum(float(number) * _UNITS_S[unit] for number, unit in steps)


def _channels(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or any(isinstance(item, bool) or item != 0 for item in value) or len(value) > 1:
        raise ValueError("must be no channel, or channel 0 alone")
    return tuple(value)


def _channels_text(text: str) -> tuple[int, ...]:
    return _channels([int(item) if item == "0" else item for item in text.split(",")])


BOOLEAN = ValueKind(_boolean_text, _boolean, is_switch=True)
TEXT = ValueKind(_text, _text)
PATH = ValueKind(_path, _path)
DURATION = ValueKind(_duration, _duration)
CHANNELS = ValueKind(_channels_text, _channels, is_list=True)


def choice(*words: str) -> ValueKind:
    """Return a kind whose value is one of the words."""

    def parse(value: object) -> str:
        if not isinstance(value, str) or value not in words:
            raise ValueError(f"must be one of: {', '.join(words)}")
        return value

    return ValueKind(parse, parse)


def choices(*words: str) -> ValueKind:
    """Return a kind whose value is one or more of the words: a list, or a text with commas."""

    def parse(value: object) -> tuple[str, ...]:
        items = [item.strip() for item in value.split(",")] if isinstance(value, str) else value
        if not isinstance(items, list) or not items or any(item not in words for item in items):
            raise ValueError(f"must be one or more of: {', '.join(words)}")
        return tuple(dict.fromkeys(items))

    return ValueKind(parse, parse, is_list=True)


def _texts(value: object) -> tuple[str, ...]:
    items = value.split(",") if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError("must be a list of texts")
    return tuple(_text(item) for item in items)


TEXTS = ValueKind(_texts, _texts, is_list=True)


def _xids(value: object) -> tuple[str, ...]:
    items = [item.strip() for item in str(value).lower().split(",")]
    if any(item not in EVERY_XID and not (item.isascii() and item.isdecimal()) for item in items if item):
        raise ValueError("must be all, xids, or numbers of XID errors with commas between")
    return tuple(dict.fromkeys(item for item in items if item))


EVERY_XID = ("all", "xids")
XIDS = ValueKind(_xids, _xids, is_list=True)
