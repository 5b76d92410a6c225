"""Signs files and verifies their signatures with OpenSSH's ``ssh-keygen -Y`` (SSHSIG); no cryptography of our own.

Needs OpenSSH 8.7 for all that is said here, such as dates of keys.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from provision.base.printable import printable
from provision.base.regular_file import read_regular
from provision.planning.supply.bundle.errors import BundleError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NAMESPACE: Final = "grapnel-bundle"
SUFFIX: Final = ".sig"
_LIMIT_S: Final = 600  # of a program that reads a whole bundle, or waits for a security key to be touched
_MAX_SIGNATURE_BYTES: Final = 64 * 1024
_MAX_SIGNERS_BYTES: Final = 1024 * 1024
_MAX_OUTPUT_BYTES: Final = 64 * 1024
_MAX_PRINCIPALS: Final = 16
_BEGIN: Final = b"-----BEGIN SSH SIGNATURE-----\n"
_END: Final = b"-----END SSH SIGNATURE-----\n"
# SSH_AUTH_SOCK lets an agent sign; TZ is what dates in a file of signers are in unless they end in Z.
_PASSED: Final = ("PATH", "HOME", "SSH_AUTH_SOCK", "TZ")
_CARRY: Final = "carry the bundle and its .sig over again from where they were made, or ask who made them"
# What ssh-keygen tells of the file of signers, and what it means; the first that fits is said.
_REASONS: Final = (
    ("key has expired", "its key has expired"),
    ("certificate has expired", "its key has expired"),
    ("key is not yet valid", "its key is not valid yet"),
    ("not permitted for use in signature namespace", "its key may not sign for this purpose"),
    ("namespace does not match", "it was made for another purpose"),
    ("incorrect signature", "the file is not the one that was signed"),
    ("bad options", "a line of the signers' file has options that ssh-keygen does not know"),
    ("parse signature", "it is damaged"),
    ("No principal matched", "it was made with a key that is not among the signers"),
)


def signature_beside(path: Path) -> Path:
    """Return where the signature of a file lies."""
    return path.with_name(path.name + SUFFIX)


def sign(stream: IO[bytes], key: Path, namespace: str = NAMESPACE) -> bytes:
    """Return the signature of what a file holds; the key may be a public one whose agent signs. Raises `BundleError`.

    A key with a passphrase is used by an agent alone: nobody is asked for one.
    """
    done = _run(("-Y", "sign", "-n", namespace, "-f", str(key.absolute())), stream, os.environ)
    if done.status or not done.out.startswith(_BEGIN):
        raise BundleError(
            f"{key}: it cannot sign: {done.reason()}",
            hint="name an ssh key without a passphrase, or the .pub of one that ssh-agent holds",
        )
    return done.out


def read_signature(path: Path) -> bytes:
    """Return the one signature in a file; raises FileNotFoundError, `BundleError`."""
    try:
        data = read_regular(path, _MAX_SIGNATURE_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise BundleError(f"{path}: {(error.strerror or str(error)).lower()}", hint=_CARRY) from error
    one = data.count(b"-----BEGIN") == 1 and data.count(b"-----END") == 1
    if not (one and data.startswith(_BEGIN) and data.endswith(_END)):
        raise BundleError(f"{path} is not one SSH signature and nothing else", hint=_CARRY)
    return data


def verify(stream: IO[bytes], signature: bytes, signers: bytes | None, where: str, namespace: str = NAMESPACE) -> str:
    """Return which signer a file's signature is of; without signers it is only seen to be of this file.

    ``signers`` is the text of a file of allowed signers (ssh-keygen(1)). Raises `BundleError`.
    """
    with tempfile.TemporaryDirectory(prefix="grapnel-signature-") as name:
        folder = Path(name)
        (folder / "signature").write_bytes(signature)
        given = ("-n", namespace, "-s", str(folder / "signature"))
        if signers is None:
            done = _run(("-Y", "check-novalidate", *given), stream, os.environ)
            if done.status:
                raise _refused(where, done)
            return ""
        (folder / "signers").write_bytes(signers)
        allowed = ("-f", str(folder / "signers"))
        found = _run(("-Y", "find-principals", "-s", str(folder / "signature"), *allowed), None, os.environ)
        if found.status:
            raise _refused(where, found)
        names = found.out.decode("utf-8", "replace").splitlines()[:_MAX_PRINCIPALS]
        for principal in names:
            found = _run(("-Y", "verify", "-I", principal, *given, *allowed), stream, os.environ)
            if found.status == 0:
                return printable(principal, limit=200)
    raise _refused(where, found)


def read_signers(path: Path) -> bytes:
    """Return the text of a file of allowed signers; raises `BundleError`."""
    try:
        return read_regular(path, _MAX_SIGNERS_BYTES)
    except OSError as error:
        raise BundleError(
            f"{path}: {(error.strerror or str(error)).lower()}",
            hint="name a file of allowed signers: each line has a name and a public key",
        ) from error


def _refused(where: str, done: _Done) -> BundleError:
    return BundleError(f"{where}: the signature is refused: {done.reason()}", hint=_CARRY)


class _Done:
    """What a command answered, cut to a size that can be kept."""

    def __init__(self, status: int, out: bytes, told: bytes) -> None:
        self.status, self.out, self._told = status, out, told.decode("utf-8", "replace")

    def reason(self) -> str:
        """Return why it failed, in our words where they are known."""
        for text, meaning in _REASONS:
            if text in self._told:
                return meaning
        lines = self._told.strip().splitlines()
        return printable(lines[-1], limit=300) if lines else f"ssh-keygen ended with {self.status}"


def _run(arguments: Sequence[str], stream: IO[bytes] | None, environment: Mapping[str, str]) -> _Done:
    """Run ssh-keygen on a file from its beginning; without a terminal, so that it asks nobody. Raises `BundleError`."""
    program = shutil.which("ssh-keygen", path=environment.get("PATH"))
    if program is None:
        raise BundleError(
            "signatures need ssh-keygen, which is not on PATH", hint="install OpenSSH's client, 8.7 or newer"
        )
    if stream is not None:
        os.lseek(stream.fileno(), 0, os.SEEK_SET)  # the program reads the descriptor, not Python's buffer
    kept = {name: environment[name] for name in _PASSED if name in environment}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as told:
        try:
            done = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL if stream is None else stream,
                stdout=out,
                stderr=told,
                env={**kept, "LC_ALL": "C", "SSH_ASKPASS_REQUIRE": "never"},
                timeout=_LIMIT_S,
                start_new_session=True,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BundleError(
                f"{program} did not end as it should: {printable(str(error), limit=300)}",
                hint="is it OpenSSH's, 8.7 or newer?",
            ) from error
        out.seek(0)
        told.seek(0)
        return _Done(done.returncode, out.read(_MAX_OUTPUT_BYTES), told.read(_MAX_OUTPUT_BYTES))
