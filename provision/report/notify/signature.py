"""Signs what is sent, as the Standard Webhooks specification has it: HMAC-SHA256 of id, time and body. Pure.

Receivers verify it with any of the published libraries, and refuse what is old or was changed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

PREFIX: Final = "whsec_"
MIN_BYTES: Final = 24  # the specification: between 24 and 64 bytes
MAX_BYTES: Final = 64


def parse_secret(text: str) -> bytes:
    """Return the key of ``whsec_`` and base64. Raises ValueError, which does not repeat it."""
    try:
        key = base64.b64decode(text.strip().removeprefix(PREFIX).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("it is not base64") from None
    if not MIN_BYTES <= len(key) <= MAX_BYTES:
        raise ValueError(f"it has {len(key)} bytes, and needs {MIN_BYTES} to {MAX_BYTES}")
    return key


def sign(key: bytes, ident: str, timestamp: int, body: bytes) -> str:
    """Return the value of the header ``webhook-signature``; ``timestamp`` is in seconds since 1970."""
    signed = f"{ident}.{timestamp}.".encode() + body
    return f"v1,{base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()}"
