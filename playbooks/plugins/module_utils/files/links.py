"""Follows links in the path of a file that is about to be replaced, if nobody but root could have created them."""

from __future__ import annotations

import os
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_MAX_LINKS = 40  # as the kernel has it
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class LinkError(Exception):
    """A link is not followed; the message says why."""


def follow_links(host: Host, path: str) -> str:
    """Return the file that a path means: the path itself when there is no link in it.

    A link is only followed when it, and every folder on the way to its end, belongs to root and can be written by
    nobody else. Raises `LinkError`.
    """
    names = list(PurePosixPath(path).parts[1:])
    place = PurePosixPath("/")
    folders, links = [place], 0
    while names:
        name = names.pop(0)
        if name == "..":
            place = place.parent
            continue
        status = _status(host, place / name)
        if status is not None and stat.S_ISLNK(status.st_mode):
            links += 1
            _require_trusted(path, place / name, status, is_link=True)
            if links > _MAX_LINKS:
                raise LinkError(f"{path} has more than {_MAX_LINKS} links in it")
            target = PurePosixPath(host.path(str(place / name)).readlink())
            place = PurePosixPath("/") if target.is_absolute() else place
            names = [*target.parts[1:], *names] if target.is_absolute() else [*target.parts, *names]
            continue
        place = place / name
        if names:
            folders.append(place)
    if links:
        for folder in folders:
            _require_trusted(path, folder, _status(host, folder), is_link=False)
    return str(place)


def _status(host: Host, place: PurePosixPath) -> os.stat_result | None:
    try:
        return host.path(str(place)).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _require_trusted(path: str, place: PurePosixPath, status: os.stat_result | None, *, is_link: bool) -> None:
    if status is None:
        raise LinkError(f"{path} is a link that leads through {place}, which does not exist")
    if status.st_uid not in (0, os.geteuid()):
        raise LinkError(
            f"{path} is or leads through a link, and {place} belongs to uid {status.st_uid}: "
            "make root its owner, or put a plain file in the link's place"
        )
    if not is_link and status.st_mode & _WRITABLE_BY_OTHERS:
        raise LinkError(
            f"{path} is or leads through a link, and {place} can be written by users other than root: "
            "remove that permission, or put a plain file in the link's place"
        )
