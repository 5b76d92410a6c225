"""Parses JSON through the interpreter's C scanner: ``import json`` costs 5 ms, because it imports re.

``_json`` is private to CPython: where it is missing or has changed, the public module does the work. Strict JSON:
NaN and Infinity are refused, as are invalid UTF-8 and anything behind the document.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Scanner = Callable[[str, int], "tuple[object, int]"]

_WHITESPACE = " \t\n\r"


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no value of it")


class _Context:
    """What the C scanner reads its settings from."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)


def c_scanner() -> Scanner | None:
    """Return CPython's scanner, or None where this interpreter has none that we know how to use."""
    try:
        from _json import make_scanner

        return make_scanner(_Context())  # type: ignore[arg-type] # typeshed wants a decoder; C reads only these names
    except (ImportError, TypeError, AttributeError):
        return None


def public_scanner() -> Scanner:
    """Return the scanner of the public module, with the same settings."""
    import json

    return json.JSONDecoder(parse_constant=_refuse_constant).raw_decode


def loads(data: bytes, scanner: Scanner | None = None) -> object:
    """Parse one JSON document; every kind of malformed input is a ValueError."""
    text = data.decode("utf-8")
    start = len(text) - len(text.lstrip(_WHITESPACE))
    try:
        document, end = _scan(text, start, scanner or c_scanner() or public_scanner())
    except RecursionError:
        raise ValueError("JSON is nested too deeply") from None
    if text[end:].strip(_WHITESPACE):
        raise ValueError(f"more text behind the JSON document at character {end}")
    return document


def _scan(text: str, start: int, scan: Scanner) -> tuple[object, int]:
    try:
        return scan(text, start)
    except (StopIteration, SystemError):
        # On malformed input the C scanner raises StopIteration, or on 3.11, while json is not imported, nothing at all
        # (SystemError). The public scanner reads the text again, for its message.
        return _scan(text, start, public_scanner())
    except ValueError as reason:
        raise ValueError(f"not JSON: {reason}") from None


def dumps_compact(document: object) -> str:
    """Write a document for a program alone, in one line, through the interpreter's C encoder where there is one."""
    encode = c_encoder()
    if encode is not None:
        return "".join(encode(document, 0))
    import json

    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def c_encoder() -> Callable[[object, int], tuple[str, ...]] | None:
    """Return CPython's encoder, or None where this interpreter has none that we know how to use."""
    try:
        from _json import encode_basestring_ascii, make_encoder

        encode: Callable[[object, int], tuple[str, ...]] = make_encoder(
            None, _refuse_value, encode_basestring_ascii, None, ":", ",", False, False, False
        )
        is_usable = "".join(encode({"a": [1, 1.5, None, True, "\n"]}, 0)) == '{"a":[1,1.5,null,true,"\\n"]}'
    except (ImportError, TypeError, AttributeError):
        return None
    return encode if is_usable else None


def _refuse_value(found: object) -> object:
    raise TypeError(f"{type(found).__name__} is not JSON")


def dumps(document: object) -> str:
    """Write a document for people and other programs (never on the way of a container that gets nothing)."""
    import json

    return json.dumps(document, indent=1) + "\n"
