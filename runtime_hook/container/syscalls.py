"""What operations may do to a container: one interface, by descriptors and single names only.

``kernel.KernelSyscalls`` is the real one; ``journal.Journal`` wraps any and remembers how to undo; tests record.
No method takes a path of the container except ``open_folder``, which the kernel resolves inside the root.
All fail with OSError.
"""

from __future__ import annotations

from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object


@value
class Occupant:
    """What has a name already: st_mode, and the device number of a device node."""

    mode: int
    major: int = 0
    minor: int = 0


class Syscalls(Protocol):
    """Everything an operation can ask of the kernel."""

    @property
    def makes_nodes(self) -> bool:
        """Whether device nodes that are made here can be opened: not in a user namespace."""

    def stage_file(self, source: str) -> None:
        """Clone a regular file of the host as a detached mount, read-only, nosuid, nodev. On the host's side."""

    def stage_node(self, source: str, major: int, minor: int) -> None:
        """Clone a device node of the host as a detached mount; ENXIO when it is another device."""

    def stage_device_rules(self) -> None:
        """Make sure that device rules can be set at all. On the host's side."""

    def open_folder(self, path: str) -> int:
        """Open a folder of the container; neither leaves the root nor crosses into another mount."""

    def open_device_folder(self) -> int:
        """Open the container's ``/dev``, which is a mount of its own but never the host's."""

    def make_folder(self, folder: int, name: str) -> None:
        """Make a folder that does not exist."""

    def remove_folder(self, folder: int, name: str) -> None:
        """Remove an empty folder."""

    def occupant(self, folder: int, name: str) -> Occupant | None:
        """Look at a name without following it; EXDEV when another mount covers it."""

    def create_file(self, folder: int, name: str) -> None:
        """Create an empty file that does not exist."""

    def attach(self, source: str, folder: int, name: str) -> int:
        """Attach a staged host file or node over a regular file; return a handle to detach it with."""

    def detach(self, handle: int) -> None:
        """Take an attached host file away."""

    def read_link(self, folder: int, name: str) -> str:
        """Return the text of a symbolic link."""

    def put_link(self, folder: int, name: str, target: str) -> None:
        """Make a symbolic link, replacing whatever non-folder has the name, in one step."""

    def read_file(self, folder: int, name: str, limit_bytes: int) -> bytes | None:
        """Return a regular file's content; None when it is larger than the limit."""

    def put_file(self, folder: int, name: str, data: bytes) -> None:
        """Write a file, replacing whatever non-folder has the name, in one step."""

    def remove(self, folder: int, name: str) -> None:
        """Remove a name that is not a folder."""

    def make_node(self, folder: int, name: str, major: int, minor: int) -> None:
        """Make a character device node, readable and writable for all."""

    def allow_device(self, rule: str) -> None:
        """Add a rule to the container's device cgroup."""

    def deny_device(self, rule: str) -> None:
        """Take a rule away from the container's device cgroup."""
