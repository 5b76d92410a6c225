"""Errors of the CRI client.

LabError
└── CriError
    ├── CallError       the engine refused a call; the message has its words
    ├── WaitError       something did not happen in time
    └── EngineError     the engine of a test did not start
"""

from lab.machine.errors import LabError


class CriError(LabError):
    """Base of what this part raises on purpose."""


class CallError(CriError):
    """The engine refused a call."""


class WaitError(CriError):
    """Something did not happen in time."""


class EngineError(CriError):
    """The engine of a test did not start."""
