"""Finds the payload that is meant: what is asked for, the environment's, the checkout's, the wheel's, the cache's."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING

import provision
from provision.base.errors import os_reason
from provision.planning.supply.payload import store
from provision.planning.supply.payload.errors import PayloadError

if TYPE_CHECKING:
    from collections.abc import Mapping


def payload_folder(asked: Path | None, environment: Mapping[str, str], declaration: Path) -> Path:
    """Return where the payload is looked for: what is asked for, the environment's, the checkout's, installed.

    Raises `PayloadError` where the checkout's may be somebody else's, which nobody has named.
    """
    if asked is not None:
        return asked
    if environment.get("GRAPNEL_PAYLOAD"):
        return Path(environment["GRAPNEL_PAYLOAD"])
    beside = declaration.absolute().parent / "dist"
    candidates = (
        beside / "payload",
        Path(provision.__file__).parent / "_payload" / "archives",  # of a release's wheel
    )
    found = next((folder for folder in candidates if folder.is_dir()), store.payload_folder(environment))
    if found == candidates[0]:
        _require_own(declaration, (beside, found))
    return found


def _require_own(declaration: Path, folders: tuple[Path, ...]) -> None:
    """Refuse folders of others: what is in them runs as root on all nodes, and the declaration may lie in ``/tmp``.

    Whoever has written the declaration decides about the nodes anyway.
    """
    own = {0, os.geteuid()}
    try:
        own |= {declaration.stat().st_uid} if declaration.is_file() else set()
        for folder in folders:
            link, status = folder.lstat(), folder.stat()
            if {link.st_uid, status.st_uid} <= own and not status.st_mode & stat.S_IWOTH:
                continue
            raise PayloadError(
                f"{folder} belongs to somebody else, or anybody can write in it",
                hint=f"if it is the payload that you mean: --payload {folders[-1]}",
            )
    except OSError as error:
        raise PayloadError(f"{error.filename}: {os_reason(error)}", hint="see --payload") from error
