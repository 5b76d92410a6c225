"""Messages as values, and their protobuf encoding.

A field is declared with its number and kind, `name: str = string(1)`; the encoding follows from that.
What the wire holds beyond the declaration is skipped, as every protobuf reader does. Source: the
protobuf encoding guide (proto3). Only the kinds that the kubelet's interfaces use are here.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import dataclass_transform
else:  # Python has it from 3.11 on, and it does nothing
    dataclass_transform = lambda **_: lambda cls: cls  # noqa: E731 - the typed form stands above

_Message = TypeVar("_Message", bound="Message")
_MAX_VARINT_BYTES = 10
_MORE = 0x80  # the highest bit of a byte: more of the number follow
_MAX_FIELD_NUMBER = (1 << 29) - 1
_MAX_GROUP_DEPTH = 32
_BITS_64 = (1 << 64) - 1
_SMALL = tuple(bytes((value,)) for value in range(0x80))


class DecodeError(Exception):
    """Bytes that are no message."""


class FieldKind(enum.Enum):
    """What a field holds, by the name that the interface gives it."""

    STRING = "string"
    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    MESSAGE = "message"
    STRING_MAP = "map<string, string>"


_SCALARS = frozenset({FieldKind.BOOL, FieldKind.INT32, FieldKind.INT64})


class _Wire(enum.IntEnum):
    """Wire types."""

    VARINT = 0
    FIXED64 = 1
    BYTES = 2
    GROUP_START = 3
    GROUP_END = 4
    FIXED32 = 5


@dataclass(frozen=True)
class Field:
    """One line of a message in the interface."""

    number: int
    kind: FieldKind
    default: Any
    message: type[Message] | None = None
    name: str = ""

    @property
    def is_repeated(self) -> bool:
        """Whether there may be any number of it."""
        return isinstance(self.default, tuple)


# Declarations: each stands where a field's default stands, whatever that field's type is.


def string(number: int) -> Any:
    """Declare a text."""
    return Field(number, FieldKind.STRING, "")


def strings(number: int) -> Any:
    """Declare any number of texts."""
    return Field(number, FieldKind.STRING, ())


def boolean(number: int) -> Any:
    """Declare a boolean."""
    return Field(number, FieldKind.BOOL, default=False)


def int32(number: int) -> Any:
    """Declare a number of 32 bits."""
    return Field(number, FieldKind.INT32, 0)


def int64(number: int) -> Any:
    """Declare a number of 64 bits."""
    return Field(number, FieldKind.INT64, 0)


def message(number: int, of: type[Message]) -> Any:
    """Declare a message, or None where there is none."""
    return Field(number, FieldKind.MESSAGE, None, of)


def messages(number: int, of: type[Message]) -> Any:
    """Declare any number of messages."""
    return Field(number, FieldKind.MESSAGE, (), of)


def string_map(number: int) -> Any:
    """Declare texts by name."""
    return Field(number, FieldKind.STRING_MAP, MappingProxyType({}))


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Message:
    """A value with named fields. A dataclass for type checkers; made without one, which costs 0.8 ms a class."""

    FIELDS: ClassVar[Mapping[int, Field]] = {}  # by number, in the order of their declaration
    ENCODERS: ClassVar[tuple[tuple[str, Callable[[Any], bytes]], ...]] = ()  # by name, in the same order
    _NAMES: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        declared = [replace(each, name=name) for name, each in vars(cls).items() if isinstance(each, Field)]
        cls.FIELDS = {each.number: each for each in declared}
        cls.ENCODERS = tuple((each.name, _encoder(each)) for each in declared)
        cls._NAMES = frozenset(each.name for each in declared)
        for each in declared:
            setattr(cls, each.name, each.default)

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self._NAMES:
            raise TypeError(f"{type(self).__name__} has no field {min(unknown)}")
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} cannot be changed")

    def _values(self) -> list[object]:
        return [getattr(self, each.name) for each in self.FIELDS.values()]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and type(self) is type(other) and self._values() == other._values()

    __hash__ = None  # type: ignore[assignment] # a map among the fields has no hash

    def __repr__(self) -> str:
        shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in self.FIELDS.values())
        return f"{type(self).__name__}({shown})"


# Encoding


def _varint(value: int) -> bytes:
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    value &= _BITS_64  # a negative number has ten bytes
    out = bytearray()
    while value >= _MORE:
        out.append(value & 0x7F | _MORE)
        value >>= 7
    out.append(value)
    return bytes(out)


def _chunk(tag: bytes, payload: bytes) -> bytes:
    return tag + _varint(len(payload)) + payload


def _tag(number: int, wire: _Wire) -> bytes:
    return _varint(number << 3 | wire)


_NAME, _TEXT = _tag(1, _Wire.BYTES), _tag(2, _Wire.BYTES)  # of an entry of a map


def _encode_map(tag: bytes, held: Mapping[str, str]) -> bytes:
    pairs = (_chunk(_NAME, name.encode()) + _chunk(_TEXT, text.encode()) for name, text in held.items())
    return b"".join([_chunk(tag, pair) for pair in pairs])


def _encoder(declared: Field) -> Callable[[Any], bytes]:
    """Return what turns a field's value into bytes; made once for each field, as an answer has dozens of values."""
    is_scalar = declared.kind in _SCALARS
    tag = _tag(declared.number, _Wire.VARINT if is_scalar else _Wire.BYTES)
    if is_scalar:
        return lambda held: tag + _varint(int(held))
    if declared.kind is FieldKind.STRING_MAP:
        return lambda held: _encode_map(tag, held)
    if declared.kind is FieldKind.MESSAGE:
        if declared.is_repeated:
            return lambda held: b"".join([_chunk(tag, encode(each)) for each in held])
        return lambda held: _chunk(tag, encode(held))
    if declared.is_repeated:
        return lambda held: b"".join([_chunk(tag, each.encode()) for each in held])
    return lambda held: _chunk(tag, held.encode())


def encode(value: Message) -> bytes:
    """Return a message's bytes; fields with their default value are left out."""
    held = value.__dict__
    return b"".join([encoder(held[name]) for name, encoder in value.ENCODERS if held.get(name)])


# Decoding


class _Reader:
    """A position in bytes. Every step checks that there is something left."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_at_end(self) -> bool:
        return self._at >= len(self._data)

    def varint(self) -> int:
        at = self._at
        if at < len(self._data) and self._data[at] < _MORE:  # nearly all of them have one byte
            self._at = at + 1
            return self._data[at]
        value = 0
        for position in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * position
            if byte < _MORE:
                return value & _BITS_64
        raise DecodeError("a number is longer than ten bytes")

    def take(self, length: int) -> bytes:
        end = self._at + length
        if end > len(self._data):
            raise DecodeError("the message ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def tag(self) -> tuple[int, int]:
        """Return the number of a field and its wire type."""
        number, wire = divmod(self.varint(), 8)
        if not 0 < number <= _MAX_FIELD_NUMBER:
            raise DecodeError(f"no field has the number {number}")
        return number, wire

    def skip(self, number: int, wire: int, depth: int = 0) -> None:
        """Pass over a field that is not declared."""
        if wire == _Wire.VARINT:
            self.varint()
        elif wire == _Wire.FIXED64:
            self.take(8)
        elif wire == _Wire.FIXED32:
            self.take(4)
        elif wire == _Wire.BYTES:
            self.take(self.varint())
        elif wire == _Wire.GROUP_START and depth < _MAX_GROUP_DEPTH:
            self._skip_group(number, depth + 1)
        else:
            raise DecodeError(f"field {number} has the wire type {wire}")

    def _skip_group(self, number: int, depth: int) -> None:
        while True:
            inner, wire = self.tag()
            if wire == _Wire.GROUP_END:
                if inner != number:
                    raise DecodeError(f"group {number} ends as {inner}")
                return
            self.skip(inner, wire, depth)


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DecodeError("a text is not utf-8") from error


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _pair(data: bytes) -> tuple[str, str]:
    reader, found = _Reader(data), {1: "", 2: ""}
    while not reader.is_at_end:
        number, wire = reader.tag()
        if wire == _Wire.BYTES and number in found:
            found[number] = _text(reader.take(reader.varint()))
        else:
            reader.skip(number, wire)
    return found[1], found[2]


def _value(declared: Field, reader: _Reader) -> Any:
    if declared.kind is FieldKind.BOOL:
        return reader.varint() != 0
    if declared.kind is FieldKind.INT32:
        return _signed(reader.varint(), 32)
    if declared.kind is FieldKind.INT64:
        return _signed(reader.varint(), 64)
    data = reader.take(reader.varint())
    if declared.kind is FieldKind.STRING:
        return _text(data)
    if declared.kind is FieldKind.STRING_MAP:
        return _pair(data)
    return data


def decode(kind: type[_Message], data: bytes) -> _Message:
    """Return the message that bytes hold; raises DecodeError.

    Of a single field that comes twice the last counts, of a single message both parts do.
    """
    known = kind.FIELDS
    reader = _Reader(data)
    found: dict[int, list[Any]] = {}
    while not reader.is_at_end:
        number, wire = reader.tag()
        declared = known.get(number)
        if declared is not None and wire == (_Wire.VARINT if declared.kind in _SCALARS else _Wire.BYTES):
            found.setdefault(number, []).append(_value(declared, reader))
        else:
            reader.skip(number, wire)
    return kind(**{known[number].name: _join(known[number], values) for number, values in found.items()})


def _join(declared: Field, values: list[Any]) -> Any:
    if declared.kind is FieldKind.STRING_MAP:
        return dict(values)
    if declared.message is not None:
        if declared.is_repeated:
            return tuple(decode(declared.message, value) for value in values)
        return decode(declared.message, b"".join(values))
    return tuple(values) if declared.is_repeated else values[-1]
