"""Writes files that others read at any moment: they see the old content or the new one, never a part."""

from __future__ import annotations

import os

from runtime_hook.base.reading import describe_error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.base.errors import HookError

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW


def replace_file(path: str, text: str, error: type[HookError], mode: int = 0o644) -> None:
    """Replace a file in one step: temporary file beside it, fsync, rename. Several writers do not disturb each other.

    The temporary name ends in hexadecimal digits, so that whoever watches a folder for ``*.json`` does not see it.
    """
    temporary = f"{path}.{os.getpid()}.{os.urandom(4).hex()}"
    try:
        descriptor = _create(temporary, mode)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, mode)
                file.write(text)
                file.flush()
                os.fsync(descriptor)
            os.rename(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as reason:
        raise error(f"cannot write {path}: {describe_error(reason)}") from reason


def remove_file(path: str, error: type[HookError]) -> None:
    """Remove a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    except OSError as reason:
        raise error(f"cannot remove {path}: {describe_error(reason)}") from reason


def _create(path: str, mode: int) -> int:
    try:
        return os.open(path, _FLAGS, mode)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        return os.open(path, _FLAGS, mode)
