"""Puts grapnel's programs where root's shell finds them: links in ``/usr/local/sbin`` to the current release."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

_FOLDER = "/usr/local/sbin"


def link_command(host: Host, part: str) -> None:
    """Link the program of a part; what others have there by that name stays."""
    place = host.path(f"{_FOLDER}/grapnel-{part}")
    if place.parent.is_dir() and not os.path.lexists(place):
        place.symlink_to(_target(part))


def our_command(host: Host, part: str) -> list[str]:
    """Return the path of the link where it is ours, which is to be removed with the part."""
    path = f"{_FOLDER}/grapnel-{part}"
    place = host.path(path)
    return [path] if place.is_symlink() and str(place.readlink()) == _target(part) else []


def _target(part: str) -> str:
    return f"/usr/lib/grapnel/{part}/grapnel-{part}"
