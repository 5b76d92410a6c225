"""Checks the signature of a module against a certificate, as the kernel does when it loads the module.

A module names its signer itself, and anybody can write that name: only the signature shows who had the key. It stands
behind the module's content (``include/linux/module_signature.h``): a CMS message, a header with its length, a mark.
"""

from __future__ import annotations

import gzip
import lzma
import os
import struct
from typing import IO, TYPE_CHECKING, cast

from ansible_collections.grapnel.node.plugins.module_utils.printable import printable

if TYPE_CHECKING:
    from pathlib import Path

    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_TIMEOUT_S = 180.0  # at the lowest priority
_MARK = b"~Module signature appended~\n"
_HEADER = struct.Struct(">BBBBB3xI")  # algorithm, hash, kind of message, two lengths that are 0 here, its length
_CMS = 2  # PKEY_ID_PKCS7
_MAX_SIGNATURE_BYTES = 64 * 1024
_MAX_BYTES = 1024 * 1024 * 1024  # unpacked: the largest module of NVIDIA's has 90 MB
_CHUNK_BYTES = 1024 * 1024


class SignatureError(Exception):
    """A module is not signed with the key of a certificate, or that cannot be found out; the message says which."""


def require_signature(host: Host, file: str, certificate: str, scratch: str) -> None:
    """Raise `SignatureError` unless a module is signed with the key of a certificate, in DER or PEM form."""
    content, message, known = (f"{scratch}/{name}" for name in ("signed-content", "signature", "certificate"))
    try:
        _unpack(host, file, content)
        host.path(message).write_bytes(_take_signature(host, content))
        _write_certificate(host, certificate, known)
        asked = ["-binary", "-inform", "DER", "-in", message, "-content", content, "-certfile", known]
        command = ["openssl", "cms", "-verify", *asked, "-nointern", "-noverify", "-out", "/dev/null"]
        done = host.run(command, _TIMEOUT_S)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise SignatureError(f"its signature cannot be read: {printable(str(error))}") from error
    finally:
        for path in (content, message, known):
            host.path(path).unlink(missing_ok=True)
    if done.return_code:
        raise SignatureError(f"its signature is not of the key of {certificate}: {done.complaint}")


def _unpack(host: Host, file: str, target: str) -> None:
    """Write a module as the kernel reads it, unpacked."""
    if file.endswith(".zst"):
        done = host.run(["zstd", "-d", "-q", "-f", "-o", target, file], _TIMEOUT_S)
        if done.return_code:
            raise SignatureError(f"it cannot be unpacked to look at its signature: {done.complaint}")
        return
    with _opened(host.path(file)) as packed, host.path(target).open("wb") as out:
        _copy(packed, out)


def _opened(path: Path) -> IO[bytes]:
    if path.suffix == ".xz":
        return lzma.open(path, "rb")
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def _copy(packed: IO[bytes], out: IO[bytes]) -> None:
    size = 0
    while chunk := packed.read(_CHUNK_BYTES):
        size += len(chunk)
        if size > _MAX_BYTES:
            raise SignatureError("it unpacks to more than a module can be")
        out.write(chunk)


def _take_signature(host: Host, file: str) -> bytes:
    """Return the signature at the end of a file, and cut it off there."""
    with host.path(file).open("r+b") as stream:
        end = stream.seek(0, os.SEEK_END)
        start = end - len(_MARK) - _HEADER.size
        if start <= 0:
            raise SignatureError("it is not signed")
        stream.seek(start)
        header, mark = stream.read(_HEADER.size), stream.read()
        if mark != _MARK:
            raise SignatureError("it is not signed")
        _, _, kind, _, _, length = _HEADER.unpack(header)
        if kind != _CMS or not 0 < length <= min(start, _MAX_SIGNATURE_BYTES):
            raise SignatureError("its signature is of an unknown kind")
        stream.seek(start - length)
        signature = stream.read(length)
        stream.truncate(start - length)
        return signature


def _write_certificate(host: Host, certificate: str, target: str) -> None:
    """Write a certificate in the one form that every openssl takes."""
    complaint = ""
    for form in ("DER", "PEM"):
        done = host.run(
            ["openssl", "x509", "-inform", form, "-in", certificate, "-outform", "PEM", "-out", target], _TIMEOUT_S
        )
        if not done.return_code:
            return
        complaint = done.complaint
    raise SignatureError(f"{certificate} cannot be read as a certificate: {complaint}")
