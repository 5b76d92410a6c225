"""Creates device nodes in the container's ``/dev`` and sets its device rules, in ``env`` mode alone."""

from __future__ import annotations

import os
import stat

from runtime_hook.base.values import value
from runtime_hook.container.operations.operation import name_taken

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.syscalls import Syscalls

_DEV = "/dev/"


@value
class AddDeviceNode:
    """Put a device node into the container's ``/dev``: a new one, or the host's where new ones cannot be opened."""

    path: str
    major: int
    minor: int
    source: str = ""
    mode: int = 0o666
    is_mandatory: bool = True

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"make device node {self.path} {self.major}:{self.minor}"

    def stage(self, syscalls: Syscalls) -> None:
        """Clone the host's node where a new one could not be opened."""
        if not syscalls.makes_nodes:
            syscalls.stage_node(self.source or self.path, self.major, self.minor, self.mode)

    def apply(self, syscalls: Syscalls) -> str:
        """Make the node; one that is there already must be the same device."""
        folder, name = device_folder(syscalls, self.path)
        try:
            if syscalls.makes_nodes:
                syscalls.make_node(folder, name, self.major, self.minor, self.mode)
            else:
                syscalls.attach_new(self.source or self.path, folder, name)
        except FileExistsError:
            status = syscalls.lstat(folder, name)
            if status is None or not stat.S_ISCHR(status.mode) or not self._is(status.major, status.minor):
                raise name_taken(status.mode if status else 0) from None
        return ""

    def _is(self, major: int, minor: int) -> bool:
        return (major, minor) == (self.major, self.minor)


@value
class LinkDevice:
    """Make a symbolic link in a folder of the container's ``/dev``."""

    path: str
    target: str
    is_mandatory: bool = False

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"link {self.path} to {self.target}"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host."""

    def apply(self, syscalls: Syscalls) -> str:
        """Make the link; one that is there already must lead to the same place."""
        folder, name = device_folder(syscalls, self.path)
        try:
            syscalls.make_link(folder, name, self.target)
        except FileExistsError:
            status = syscalls.lstat(folder, name)
            is_link = status is not None and stat.S_ISLNK(status.mode)
            if not is_link or syscalls.read_link(folder, name) != self.target:
                raise name_taken(status.mode if status else 0) from None
        return ""


@value
class AllowDevices:
    """Let the container open devices, given by their numbers: all at once, as a rule alone costs as much."""

    numbers: tuple[tuple[int, int], ...]
    is_mandatory: bool = True

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"allow devices {', '.join(f'{major}:{minor}' for major, minor in self.numbers)} rw"

    def stage(self, syscalls: Syscalls) -> None:
        """Find where device rules are set."""
        syscalls.stage_device_rules()

    def apply(self, syscalls: Syscalls) -> str:
        """Add the rules."""
        syscalls.allow_devices(tuple(f"c {major}:{minor} rw" for major, minor in self.numbers))
        return ""


def device_folder(syscalls: Syscalls, path: str) -> tuple[int, str]:
    """Open the folder of a device path below ``/dev``, making what is missing; return it with the last name."""
    folder, name = os.path.split(path[len(_DEV) :])
    return _ensure(syscalls, folder), name


def _ensure(syscalls: Syscalls, folder: str) -> int:
    try:
        return syscalls.open_device_folder(folder)
    except FileNotFoundError:
        parent, name = os.path.split(folder)
        if not name:
            raise
        syscalls.make_folder(_ensure(syscalls, parent), name)
        return syscalls.open_device_folder(folder)
