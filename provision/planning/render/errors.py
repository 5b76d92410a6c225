"""What can go wrong while rendering.

GrapnelError
└── EngineConfigError    1   the engine's configuration is not one that can be added to
"""

from __future__ import annotations

from provision.base.errors import GrapnelError


class EngineConfigError(GrapnelError):
    """The engine's configuration cannot be parsed, or says something that grapnel must not override."""
