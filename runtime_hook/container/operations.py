"""The operations that a plan is made of: values that say what they will do, and do it through ``Syscalls``.

``stage`` happens on the host's side before anything is changed, ``apply`` inside the container's mount namespace;
it returns a note for the log, mostly empty. A mandatory operation that fails refuses the container, an optional one
is skipped with a line.
"""

from __future__ import annotations

import errno
import os
import stat

from runtime_hook.errors import CacheError
from runtime_hook.loadercache.cache import CACHE_LIMIT_BYTES, LoaderCache, merge
from runtime_hook.values import value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from runtime_hook.container.syscalls import Syscalls
    from runtime_hook.loadercache.cache import CacheEntry
else:
    Protocol = object


class Operation(Protocol):
    """One step of a plan."""

    @property
    def is_mandatory(self) -> bool:
        """Whether a failure refuses the container."""

    def describe(self) -> str:
        """Say what will be done, in one line."""

    def stage(self, syscalls: Syscalls) -> None:
        """Prepare on the host's side."""

    def apply(self, syscalls: Syscalls) -> str:
        """Do it."""


@value
class BindFile:
    """Show a file of the host in the container, read-only."""

    source: str
    folder: str
    name: str
    is_mandatory: bool

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"bind {self.source} on {self.folder}/{self.name}, read-only"

    def stage(self, syscalls: Syscalls) -> None:
        """Clone the host's file."""
        syscalls.stage_file(self.source)

    def apply(self, syscalls: Syscalls) -> str:
        """Create the target where there is none and attach the clone."""
        folder = ensure_folder(syscalls, self.folder)
        occupant = syscalls.occupant(folder, self.name)
        if occupant is None:
            syscalls.create_file(folder, self.name)
        elif not stat.S_ISREG(occupant.mode):
            raise _occupied(occupant.mode)
        syscalls.attach(self.source, folder, self.name)
        return ""


@value
class LinkName:
    """Lead a name to a library in the same folder.

    A link of the image is replaced. A regular file of the image (a stub, an old driver) is not destroyed: the host's
    library covers it.
    """

    folder: str
    name: str
    target: str
    source: str
    is_mandatory: bool

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"link {self.folder}/{self.name} to {self.target}"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host."""

    def apply(self, syscalls: Syscalls) -> str:
        """Make the link, or cover the file that has its name."""
        folder = ensure_folder(syscalls, self.folder)
        occupant = syscalls.occupant(folder, self.name)
        if occupant is None:
            syscalls.put_link(folder, self.name, self.target)
        elif stat.S_ISREG(occupant.mode):
            syscalls.attach(self.source, folder, self.name)
        elif not stat.S_ISLNK(occupant.mode):
            raise _occupied(occupant.mode)
        elif syscalls.read_link(folder, self.name) != self.target:
            syscalls.put_link(folder, self.name, self.target)
        return ""


@value
class AddDeviceNode:
    """Put a device node into the container's ``/dev``: a new one, or the host's where new ones cannot be opened."""

    path: str
    major: int
    minor: int
    source: str = ""
    is_mandatory: bool = True

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"make device node {self.path} {self.major}:{self.minor}"

    def stage(self, syscalls: Syscalls) -> None:
        """Clone the host's node where a new one could not be opened."""
        if not syscalls.makes_nodes:
            syscalls.stage_node(self.source or self.path, self.major, self.minor)

    def apply(self, syscalls: Syscalls) -> str:
        """Make the node; one that is there already must be the same device."""
        folder, name = syscalls.open_device_folder(), os.path.basename(self.path)
        occupant = syscalls.occupant(folder, name)
        if occupant is None and syscalls.makes_nodes:
            syscalls.make_node(folder, name, self.major, self.minor)
        elif occupant is None:
            syscalls.create_file(folder, name)
            syscalls.attach(self.source or self.path, folder, name)
        elif not stat.S_ISCHR(occupant.mode) or (occupant.major, occupant.minor) != (self.major, self.minor):
            raise _occupied(occupant.mode)
        return ""


@value
class AllowDevice:
    """Let the container open a device."""

    path: str
    major: int
    minor: int
    is_mandatory: bool = True

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"allow device {self.path} {self.major}:{self.minor} rw"

    def stage(self, syscalls: Syscalls) -> None:
        """Find where device rules are set."""
        syscalls.stage_device_rules()

    def apply(self, syscalls: Syscalls) -> str:
        """Add the rule."""
        syscalls.allow_device(f"c {self.major}:{self.minor} rw")
        return ""


@value
class MergeLoaderCache:
    """Add the libraries to the image's loader cache; a damaged cache is replaced by one of ours alone."""

    entries: tuple[CacheEntry, ...]
    is_mandatory: bool = True

    def describe(self) -> str:
        """Say what will be done, in one line."""
        return f"merge {len(self.entries)} names into /etc/ld.so.cache"

    def stage(self, syscalls: Syscalls) -> None:
        """Need nothing of the host."""

    def apply(self, syscalls: Syscalls) -> str:
        """Write the merged cache in one step."""
        folder = ensure_folder(syscalls, "/etc")
        cache, note = None, ""
        occupant = syscalls.occupant(folder, "ld.so.cache")
        if occupant is not None:
            if not stat.S_ISREG(occupant.mode):
                raise _occupied(occupant.mode)
            cache, note = _parse(syscalls.read_file(folder, "ld.so.cache", CACHE_LIMIT_BYTES))
        syscalls.put_file(folder, "ld.so.cache", merge(cache, self.entries))
        return note


def _parse(data: bytes | None) -> tuple[LoaderCache | None, str]:
    if data is None:
        raise OSError(errno.EFBIG, f"larger than {CACHE_LIMIT_BYTES >> 20} MiB")
    try:
        return LoaderCache(data), ""
    except CacheError as reason:
        return None, f"the image's {reason}; written afresh"


def ensure_folder(syscalls: Syscalls, path: str) -> int:
    """Open a folder of the container, making what is missing of it."""
    try:
        return syscalls.open_folder(path)
    except FileNotFoundError:
        parent, name = os.path.split(path)
        if not name:
            raise
        syscalls.make_folder(ensure_folder(syscalls, parent), name)
        return syscalls.open_folder(path)


def _occupied(mode: int) -> OSError:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "another device",
        stat.S_IFBLK: "a block device",
    }
    return OSError(errno.EEXIST, f"the image has {kinds.get(stat.S_IFMT(mode), 'something else')} there")
