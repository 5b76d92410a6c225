"""Parses and compares Debian package versions, ``[epoch:]upstream[-revision]`` (Debian Policy 5.6.12)."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from itertools import zip_longest

_PARTS = re.compile(r"([^0-9]*)([0-9]*)")
_REBUILD = re.compile(r"\+b[0-9]+$")


@functools.total_ordering
@dataclass(frozen=True, eq=False)
class DebianVersion:
    """One version; versions that compare equal are equal, however they are written."""

    text: str

    @property
    def epoch(self) -> int:
        """Return the number before the colon, 0 when there is none."""
        head, colon, _ = self.text.partition(":")
        return int(head) if colon else 0

    @property
    def upstream(self) -> str:
        """Return the version that the driver's makers gave it."""
        return self._without_epoch.rpartition("-")[0] or self._without_epoch

    @property
    def revision(self) -> str:
        """Return what the distribution added, empty when there is none."""
        head, _, tail = self._without_epoch.rpartition("-")
        return tail if head else ""

    @property
    def source(self) -> str:
        """Return the version of the source package: a binary rebuild (``+b1``) has the source it was built from."""
        return _REBUILD.sub("", self.text)

    @property
    def _without_epoch(self) -> str:
        return self.text.partition(":")[2] or self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DebianVersion) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __lt__(self, other: DebianVersion) -> bool:
        return self._key < other._key

    @property
    def _key(self) -> tuple[int, _Part, _Part]:
        return (self.epoch, _Part(self.upstream), _Part(self.revision))


@functools.total_ordering
class _Part:
    """The upstream version or the revision: runs of non-digits and numbers, compared in turn."""

    def __init__(self, text: str) -> None:
        self._runs = [(_weights(word), int(digits or 0)) for word, digits in _PARTS.findall(text)]
        while self._runs and self._runs[-1] == (_END, 0):
            self._runs.pop()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Part) and self._runs == other._runs

    def __hash__(self) -> int:
        return hash(tuple(self._runs))

    def __lt__(self, other: _Part) -> bool:
        for mine, theirs in zip_longest(self._runs, other._runs, fillvalue=(_END, 0)):
            if mine != theirs:
                return mine < theirs
        return False


def _weights(word: str) -> tuple[int, ...]:
    """Return a word's sort key: ``~`` comes before the end, the end before letters, letters before the rest."""
    return (*(-1 if sign == "~" else ord(sign) if sign.isalpha() else ord(sign) + 256 for sign in word), 0)


_END = _weights("")
