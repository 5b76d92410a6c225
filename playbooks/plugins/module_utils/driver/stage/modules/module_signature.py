"""Checks the key that signs modules before it is used, and the signatures of modules after, with openssl.

A module names who signed it, and anybody can write a name: so the signature itself is verified, against the declared
certificate alone. The private key stays where it is; nothing here reads it but openssl, by its path.
"""

from __future__ import annotations

import gzip
import os
import re
import stat
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import failure
from ansible_collections.grapnel.node.plugins.module_utils.machine.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import Signing
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_TIMEOUT_S = 120.0
_MAX_BYTES = 512 * 1024 * 1024  # a module with debugging symbols is half of that
# include/linux/module_signature.h: algorithm, hash, kind, two lengths, padding; then the signature's length.
_MAGIC = b"~Module signature appended~\n"
_TRAILER = struct.Struct(">BBBBB3xI")
_PKCS7 = 2
_NAME = re.compile(r"^ *commonName *= *(.*)$", re.MULTILINE)
_KEY_ID = re.compile(r"Subject Key Identifier: *\n? *((?:[0-9A-F]{2}:)+[0-9A-F]{2})")
_BLOCK = "-----BEGIN {0}-----.*?-----END {0}-----\n"
_WHERE = "put it there while modules are built, for root alone (chown root, chmod 600); it is not needed afterwards"


@dataclass(frozen=True)
class Certificate:
    """A certificate that modules are signed by; ``key_id`` is what the kernel lists it with, "" where it has none."""

    path: str
    name: str
    key_id: str
    public_key: str
    pem: str


def read_certificate(host: Host, path: str) -> Certificate:
    """Read a certificate in either form; raises `StageError`."""
    shown = ["-noout", "-subject", "-nameopt", "multiline", "-pubkey", "-ext", "subjectKeyIdentifier"]
    for form in ("DER", "PEM"):
        said = host.run(["openssl", "x509", "-inform", form, "-in", path, *shown], _TIMEOUT_S).stdout
        name = _NAME.search(said)
        if name:
            key_id = _KEY_ID.search(said)
            return Certificate(
                path,
                printable(name[1].strip()),
                key_id[1].replace(":", "").lower() if key_id else "",
                _block(said, "PUBLIC KEY"),
                _block(host.run(["openssl", "x509", "-inform", form, "-in", path], _TIMEOUT_S).stdout, "CERTIFICATE"),
            )
    raise failure(
        "signing-certificate",
        f"{path} cannot be read as a certificate with a name",
        "give driver.signing a certificate in DER or PEM form, and install openssl on the node",
    )


def _block(text: str, kind: str) -> str:
    found = re.search(_BLOCK.format(kind), text, re.DOTALL)
    return found[0] if found else ""


def require_signing_key(host: Host, sign: Signing, certificate: Certificate) -> None:
    """Raise `StageError` unless the key is root's alone, needs no passphrase, and is that of the certificate."""
    try:
        status = host.path(sign.key).stat()
    except OSError as error:
        raise _no_key(f"{sign.key} is not there: {error.strerror or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise _no_key(f"{sign.key} is not a file")
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise _no_key(f"{sign.key} can be used by others than root")
    done = host.run(["openssl", "pkey", "-in", sign.key, "-pubout", "-passin", "pass:"], _TIMEOUT_S)
    public_key = _block(done.stdout, "PUBLIC KEY")
    if done.return_code or not public_key:
        raise _no_key(f"{sign.key} is no private key in PEM form without a passphrase")
    if public_key != certificate.public_key:
        raise _no_key(f"{sign.key} is not the key of the certificate {certificate.path}")


def _no_key(why: str) -> StageError:
    return failure("signing-key", f"modules cannot be signed: {why}", _WHERE)


def find_forgery(host: Host, file: str, certificate: Certificate, scratch: str) -> str:
    """Return why a module's signature is not one by a certificate's key, empty when it is."""
    try:
        parts = split_signature(_read(host, file, scratch))
    except (OSError, ValueError) as error:
        return f"cannot be read: {printable(str(error))}"
    if parts is None:
        return "has no signature that the kernel would read"
    places = [f"{scratch}/signed.{name}" for name in ("content", "p7s", "pem")]
    for place, data in zip(places, (*parts, certificate.pem.encode())):
        host.path(place).write_bytes(data)
    content, signature, pem = places
    named = ["-content", content, "-inform", "DER", "-in", signature, "-certfile", pem, "-out", "/dev/null"]
    done = host.run(["openssl", "cms", "-verify", "-binary", "-nointern", "-noverify", *named], _TIMEOUT_S)
    for place in places:
        host.path(place).unlink()
    return f"is not signed by the key of {certificate.path}: {done.complaints}" if done.return_code else ""


def split_signature(data: bytes) -> tuple[bytes, bytes] | None:
    """Return a module without its signature, and the signature (CMS, DER); None for one that is not signed so."""
    if not data.endswith(_MAGIC):
        return None
    end = len(data) - len(_MAGIC) - _TRAILER.size
    if end < 0:
        return None
    *_, kind, _signer, _key, size = _TRAILER.unpack_from(data, end)
    if kind != _PKCS7 or size == 0 or size > end:
        return None
    return data[: end - size], data[end - size : end]


def _read(host: Host, file: str, scratch: str) -> bytes:
    """Return a module as it was before it was compressed; raises OSError, ValueError."""
    place = host.path(file)
    if file.endswith(".zst"):
        plain = f"{scratch}/signed.plain"
        done = host.run(["zstd", "--decompress", "--quiet", "--force", "-o", plain, file], _TIMEOUT_S)
        if done.return_code:
            raise ValueError(done.complaints)
        data = host.path(plain).read_bytes()
        host.path(plain).unlink()
        return data
    if file.endswith(".xz"):
        import lzma  # noqa: PLC0415 - a small Python may lack it, and needs it only here

        try:
            with lzma.open(place) as stream:
                data = stream.read(_MAX_BYTES + 1)
        except (lzma.LZMAError, EOFError) as error:
            raise ValueError(str(error)) from error
    else:
        with gzip.open(place) if file.endswith(".gz") else place.open("rb") as stream:
            data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError("it is larger than a driver's modules are")
    return data
