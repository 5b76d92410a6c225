"""Finds the ``grapnel.node`` collection: in the installed package, or in a checkout."""

from __future__ import annotations

from pathlib import Path

INSTALLED = Path("_collection", "ansible_collections", "grapnel", "node")


def find_collection(package: Path) -> Path | None:
    """Return the collection's root for the ``provision`` package at ``package``; None if there is none.

    A wheel carries the collection inside the package; a checkout has it in ``playbooks`` beside the package.
    """
    for candidate in (package / INSTALLED, package.parent / "playbooks"):
        if (candidate / "galaxy.yml").is_file() or (candidate / "facts.yml").is_file():
            return candidate.resolve()
    return None
