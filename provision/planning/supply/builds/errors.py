"""Errors of built modules.

BuildsError
└── ArchiveError
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class BuildsError(GrapnelError):
    """A built module cannot be kept, or handed on."""


class ArchiveError(BuildsError):
    """What a node gave as its built module is not that, or not that alone."""
