"""Errors of the simulated NVML.

LabError
└── NvmlError
    ├── StateError      a state file that cannot be read or written
    └── PathError       a path into a machine that does not exist, or a value that does not fit there
"""

from lab.machine.errors import LabError


class NvmlError(LabError):
    """Base of what this part raises on purpose."""


class StateError(NvmlError):
    """A state file that cannot be read or written."""


class PathError(NvmlError):
    """A path into a machine that does not exist, or a value that does not fit there."""
