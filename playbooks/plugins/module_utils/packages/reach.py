"""Names package sources and proxies in messages, without the passwords that their addresses may carry."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterable

_PASSWORD = re.compile(r"(?<=://)[^/@\s]*@")
# In the words of apt, dnf (curl's error 23) and zypper.
_NO_SPACE = re.compile(
    r"No space left on device|enough free space|needs? .*more space|Insufficient space|Failed writing received data|"
    r"Can't hardlink/copy"
)
NO_SPACE_REMEDY = "make room on the file system that is named, then stage again: what was downloaded is kept"


def without_passwords(text: str) -> str:
    """Return a text in which no address names a user or a password."""
    return _PASSWORD.sub("", text)


def sites_of(uris: Iterable[str]) -> str:
    """Return the servers of addresses, each once, for a message."""
    parts = (urlsplit(without_passwords(uri)) for uri in uris)
    return ", ".join(dict.fromkeys(f"{each.scheme}://{each.netloc}" for each in parts if each.netloc))


def is_out_of_space(text: str) -> bool:
    """Tell whether a package manager could not go on because a disk is full."""
    return _NO_SPACE.search(text) is not None
