"""Errors of the images.

LabError
└── ImageError      an image that does not exist, or whose packages cannot be read
"""

from lab.machine.errors import LabError


class ImageError(LabError):
    """An image that cannot be built."""
