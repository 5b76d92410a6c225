"""Errors of the images.

ImageError      an image that does not exist, or whose ingredients cannot be read or compiled
"""


class ImageError(Exception):
    """An image that cannot be made; `hint` says what helps."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint
