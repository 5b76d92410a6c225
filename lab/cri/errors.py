"""Errors of the CRI client.

CriError
├── CallError       the engine refused a call: `message` has its words
├── WaitError       something did not happen in time
└── EngineError     the engine of a test did not start
"""


class CriError(Exception):
    """Base of what this part raises on purpose; `hint` says what helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class CallError(CriError):
    """The engine refused a call."""


class WaitError(CriError):
    """Something did not happen in time."""


class EngineError(CriError):
    """The engine of a test did not start."""
