"""The C scanner against the public module: the same documents, the same refusals."""

from __future__ import annotations

import json
import random

import pytest

from runtime_hook.base.jsonfast import c_encoder, c_scanner, dumps, dumps_compact, loads, public_scanner

SAMPLE = b' {"a": [1, -2.5e3, true, false, null, "\\u00e9\\ud83d\\ude00\\n"], "b": {"": {}}, "a2": []}\n'


def outcome(data: bytes, *, fast: bool) -> object:
    try:
        return loads(data, None if fast else public_scanner())
    except ValueError:
        return "refused"


def test_this_interpreter_has_the_c_scanner() -> None:
    assert c_scanner() is not None


def test_a_document_is_read_as_the_public_module_reads_it() -> None:
    assert loads(SAMPLE) == json.loads(SAMPLE)
    assert loads(dumps({"a": [1]}).encode()) == {"a": [1]}


@pytest.mark.slow
def test_damaged_documents_have_the_same_outcome_with_both_scanners() -> None:
    source = random.Random(7)
    for _ in range(3000):
        data = bytearray(SAMPLE)
        for _ in range(source.randint(1, 3)):
            place = source.randrange(len(data))
            data[place : place + source.randint(0, 2)] = bytes(
                source.choices(b'{}[]",:0\\ntx \xff', k=source.randint(0, 2))
            )
        assert outcome(bytes(data), fast=True) == outcome(bytes(data), fast=False), bytes(data)


@pytest.mark.parametrize(
    "text", ["", "{", "[1,]", "nul", "'a'", '{"a" 1}', "NaN", "[Infinity]", "[-Infinity]", "1 2", "\ufeff{}", '"\n"']
)
def test_what_is_not_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any message will do, the type is the contract
        loads(text.encode())


def test_the_complaint_is_the_same_whichever_python_starts_the_hook() -> None:
    """The C scanner complains itself on 3.9, 3.12 and later, and on 3.11 where `json` is imported."""
    with pytest.raises(ValueError, match="not JSON: Expecting property name"):
        loads(b"{")


@pytest.mark.slow
@pytest.mark.parametrize("opening", [b"[", b'{"a":'])
def test_deep_nesting_is_a_value_error(opening: bytes) -> None:
    with pytest.raises(ValueError, match="JSON is nested too deeply"):
        loads(opening * 200_000)


def test_what_is_written_in_one_line_is_what_was_read() -> None:
    document = loads(SAMPLE)
    assert c_encoder() is not None
    assert dumps_compact(document) == json.dumps(document, separators=(",", ":"))
    assert dumps_compact({"hard": 2**64 - 1, "share": 0.1}) == '{"hard":18446744073709551615,"share":0.1}'
