"""Seals what an agent tells, so that who reads the log of its pod learns nothing of it, and can add nothing to it.

The key is made for one Job, and is in that Job's Secret and in the controller's memory alone. Each start of the agent
seals with a key of its own that is derived from it, and counts: a number is used once, whatever is started again.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

SEAL_KEY: Final = "seal.key"  # of the Secret; the key is nowhere else: not in the pod, its environment or its log
JOB_UID: Final = "job-uid"  # of the Secret
KEY_BYTES: Final = 32
TAG_BYTES: Final = 16
_NONCE_BYTES: Final = 12
_PURPOSE: Final = "grapnel.dev/node-job/v1alpha2 log"


class SealError(Exception):
    """Something was not sealed by the agent of this Job, at this place of its log."""


@dataclass(frozen=True, slots=True)
class Start:
    """Seals and opens the lines of one start of an agent."""

    job: str
    run: str
    _cipher: AESGCM = field(repr=False)

    def seal(self, number: int, end: str, piece: bytes) -> bytes:
        """Return a piece for one line, which no other line may have."""
        return self._cipher.encrypt(_nonce(number), piece, self._place(number, end))

    def open(self, number: int, end: str, sealed: bytes) -> bytes:
        """Return the piece of a line; raises SealError."""
        try:
            return self._cipher.decrypt(_nonce(number), sealed, self._place(number, end))
        except (InvalidTag, ValueError):  # ValueError: shorter than a tag
            raise SealError from None

    def _place(self, number: int, end: str) -> bytes:
        return f"{self.job} {self.run} {number} {end}".encode()


@dataclass(frozen=True, slots=True)
class Seal:
    """What the controller and the agent of one Job have in common. ``job`` is the Job's UID."""

    key: bytes = field(repr=False)
    job: str

    @classmethod
    def fresh(cls, job: str) -> Seal:
        """Return one that was never used before."""
        return cls(secrets.token_bytes(KEY_BYTES), job)

    def start(self, run: str) -> Start:
        """Return what one start of the agent seals with; ``run`` has to be another one each time."""
        purpose = f"{_PURPOSE} {self.job} {run}".encode()
        derived = HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=purpose).derive(self.key)
        return Start(self.job, run, AESGCM(derived))


def _nonce(number: int) -> bytes:
    return number.to_bytes(_NONCE_BYTES, "big")
