"""Reads what the declaration says of receivers, with the files that it names, before anything is changed."""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from provision.base.errors import GrapnelError
from provision.base.regular_file import read_regular
from provision.report.notify.webhook import Receiver, parse_secret

if TYPE_CHECKING:
    from collections.abc import Iterable

    from provision.declaration.spec.model import Notify

MAX_FILE: Final = 4096
_LABEL: Final = r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9])?"
_HOST: Final = rf"{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\]"
_URL: Final = re.compile(
    rf"(https://({_HOST})|http://(localhost|127\.0\.0\.1|\[::1\]))(:[1-9][0-9]{{0,4}})?([/?][!-~]*)?"
)
_MAKE: Final = "make one: `echo whsec_$(openssl rand -base64 32)`"


class ReceiverError(GrapnelError):
    """A receiver of notifications cannot be told anything: its file is missing, or not what it should be."""


def read_receivers(declared: Iterable[Notify]) -> tuple[Receiver, ...]:
    """Return the receivers, each once. Raises ReceiverError, which repeats nothing of a file."""
    return tuple(_receiver(one) for one in dict.fromkeys(declared))


def _receiver(one: Notify) -> Receiver:
    try:
        key = parse_secret(_read(one.secret_file))
    except ValueError as error:
        raise ReceiverError(f"rollout.notify: key in {one.secret_file}: {error}", hint=_MAKE) from None
    url = one.url or _read(one.url_file or "")
    if not _can_be_told(url):
        what = f"what {one.url_file} has" if one.url is None else one.url
        raise ReceiverError(
            f"rollout.notify: {what} is not a URL that can be told anything", hint="one line: https://HOST/PATH"
        )
    return Receiver(url=url, key=key, types=frozenset(event.value for event in one.events))


def _can_be_told(url: str) -> bool:
    """Tell whether a URL is one that a request can be made of: what cannot is told before anything is changed."""
    if not _URL.fullmatch(url):
        return False
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port  # a port that there is not is a ValueError
        if ":" in host:
            ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return port != 0


def _read(path: str) -> str:
    try:
        return read_regular(Path(path), MAX_FILE).decode("ascii").strip()
    except OSError as error:
        raise ReceiverError(f"rollout.notify: {path}: {error.strerror}", hint=_MAKE) from error
    except UnicodeDecodeError as error:
        raise ReceiverError(f"rollout.notify: {path} is no text", hint=_MAKE) from error
