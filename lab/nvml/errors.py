"""Errors of the simulated NVML.

LabError
└── NvmlError
    ├── StateError      a state file that cannot be read or written
    └── PathError       a path that does not exist in the machine, or a value of the wrong type
"""

from lab.machine.errors import LabError


class NvmlError(LabError):
    """Base of this package's errors."""


class StateError(NvmlError):
    """A state file that cannot be read or written."""


class PathError(NvmlError):
    """A path that does not exist in the machine, or a value of the wrong type."""
