"""Errors of the CRI client.

LabError
└── CriError
    ├── CallError       the engine refused a call; the message has its error
    ├── WaitError       something did not happen in time
    └── EngineError     the test's engine did not start
"""

from lab.machine.errors import LabError


class CriError(LabError):
    """Base of this package's errors."""


class CallError(CriError):
    """The engine refused a call."""


class WaitError(CriError):
    """Something did not happen in time."""


class EngineError(CriError):
    """The test's engine did not start."""
