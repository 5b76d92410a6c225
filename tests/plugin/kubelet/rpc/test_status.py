from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugin.kubelet.rpc.status import (
    CallError,
    Code,
    decode_detail,
    encode_detail,
    format_timeout,
    parse_code,
    parse_timeout,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("device 'GPU-0' is not healthy", b"device 'GPU-0' is not healthy", id="plain text stays"),
        pytest.param("100 %", b"100 %25", id="the sign of the encoding is encoded"),
        pytest.param("ü\n", b"%C3%BC%0A", id="what is not printable ascii is encoded"),
        pytest.param("", b"", id="nothing"),
    ],
)
def test_a_detail_goes_into_a_header_and_back(text: str, value: bytes) -> None:
    assert encode_detail(text) == value
    assert decode_detail(value) == text


@given(text=st.text(max_size=200))
def test_every_detail_comes_back(text: str) -> None:
    value = encode_detail(text)
    assert decode_detail(value) == text.encode("utf-8", "replace").decode()
    assert all(0x20 <= byte < 0x7F for byte in value)


@pytest.mark.slow
@given(text=st.text(min_size=900))
def test_a_long_detail_still_fits_a_header(text: str) -> None:
    assert len(encode_detail(text)) <= 3 * 1024


@pytest.mark.parametrize("value", [b"%", b"%4", b"%zz", b"a%-1b", b"%ff", b"\xff"])
def test_a_detail_that_is_not_encoded_properly_is_shown_all_the_same(value: bytes) -> None:
    assert decode_detail(value)


@given(value=st.binary())
def test_no_detail_is_too_odd(value: bytes) -> None:
    decode_detail(value)


@pytest.mark.parametrize(
    ("value", "code"),
    [(b"0", Code.OK), (b"14", Code.UNAVAILABLE), (b"99", Code.UNKNOWN), (b"x", Code.UNKNOWN), (None, Code.UNKNOWN)],
)
def test_a_status_is_one_of_the_known_ones(value: bytes | None, code: Code) -> None:
    assert parse_code(value) is code


@pytest.mark.parametrize(
    ("value", "seconds"),
    [(b"1H", 3600), (b"2M", 120), (b"3S", 3), (b"250m", 0.25), (b"7u", 7e-6), (b"8n", 8e-9), (b"99999999S", 99999999)],
)
def test_a_timeout_has_a_number_and_a_unit(value: bytes, seconds: float) -> None:
    assert parse_timeout(value) == pytest.approx(seconds)


@pytest.mark.parametrize("value", [b"", b"S", b"5", b"5s", b"-1S", b"1.5S", b"123456789S", "٣S".encode()])
def test_a_timeout_that_is_none_is_refused(value: bytes) -> None:
    with pytest.raises(CallError) as raised:
        parse_timeout(value)
    assert raised.value.code is Code.INTERNAL


@given(seconds=st.floats(0, 99_999_999))
def test_a_timeout_is_never_shorter_than_asked_for(seconds: float) -> None:
    value = format_timeout(seconds)
    assert len(value) <= 9
    assert parse_timeout(value) >= seconds - 1e-9
    assert parse_timeout(value) > 0
