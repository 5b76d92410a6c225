"""Errors of the simulated NVML.

NvmlLabError
├── StateError      a state file that cannot be read or written
├── PathError       a path into a machine that does not exist, or a value that does not fit there
└── BuildError      the compiler refused
"""


class NvmlLabError(Exception):
    """Base of what this part raises on purpose; `hint` says what helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class StateError(NvmlLabError):
    """A state file that cannot be read or written."""


class PathError(NvmlLabError):
    """A path into a machine that does not exist, or a value that does not fit there."""


class BuildError(NvmlLabError):
    """The compiler refused."""
