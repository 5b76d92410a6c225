"""Checks the key that is to sign modules, with its certificate, before minutes of building.

The private key stays where it is; nothing here reads it but openssl, by its path.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import failure
from ansible_collections.grapnel.node.plugins.module_utils.printable import printable

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.driver.change import Signing
    from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.model import StageError
    from ansible_collections.grapnel.node.plugins.module_utils.host import Host

_TIMEOUT_S = 120.0
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
