"""Parses and compares RPM versions, ``[epoch:]version[-release]`` (rpm-version(7), rpmio/rpmvercmp.c)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_SEGMENT = re.compile(r"~|\^|[0-9]+|[A-Za-z]+")
# A kernel module package of SUSE has the kernel that it was built for after the driver's version:
# nvidia-open-driver-G06-signed-cuda-kmp-default-580.126.09_k5.14.21_150500.55.133-150500.3.85.1 (SLES 15 SP5 updates).
_BUILT_FOR = re.compile(r"_k[0-9].*$")
# Ranks of what may come next in a version: a tilde is older than nothing, a caret newer than nothing.
_TILDE, _END, _CARET, _WORD, _NUMBER = range(5)

_Key = tuple[tuple[int, int, str], ...]


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class RpmVersion:
    """One version; versions that compare equal are equal, however they are written."""

    text: str

    @property
    def epoch(self) -> int:
        """Return the number before the colon, 0 when there is none."""
        head, colon, _ = self.text.partition(":")
        return int(head) if colon else 0

    @property
    def version(self) -> str:
        """Return the part between epoch and release."""
        return self._without_epoch.partition("-")[0]

    @property
    def release(self) -> str:
        """Return what the packager added, empty when there is none."""
        return self._without_epoch.partition("-")[2]

    @property
    def upstream(self) -> str:
        """Return the version that the driver's makers gave it."""
        return _BUILT_FOR.sub("", self.version)

    @property
    def source(self) -> str:
        """Return what all packages of one driver have in common.

        They come from several source packages, each with an epoch and a release of its own (Amazon Linux 2023.10:
        nvidia-driver-cuda 3:580.126.09-1.amzn2023 beside libnvidia-nscq 580.126.09-1).
        """
        return self.upstream

    @property
    def _without_epoch(self) -> str:
        return self.text.partition(":")[2] or self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RpmVersion) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: RpmVersion) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[int, _Key, _Key]:
        return (self.epoch, _key(self.version), _key(self.release))


def _key(text: str) -> _Key:
    """Return a sort key: runs of letters and numbers, other signs only separate them."""
    return (*(_weigh(segment) for segment in _SEGMENT.findall(text)), (_END, 0, ""))


def _weigh(segment: str) -> tuple[int, int, str]:
    if segment == "~":
        return (_TILDE, 0, "")
    if segment == "^":
        return (_CARET, 0, "")
    return (_NUMBER, int(segment), "") if segment.isdigit() else (_WORD, 0, segment)
