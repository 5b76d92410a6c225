"""Adds the driver's libraries to the image's loader cache."""

from __future__ import annotations

import errno
import stat

from runtime_hook.base.errors import CacheError
from runtime_hook.base.values import value
from runtime_hook.container.operations.operation import ensure_folder, name_taken
from runtime_hook.loader.cache import CACHE_LIMIT_BYTES, LoaderCache, merge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.syscalls import Syscalls
    from runtime_hook.loader.cache import CacheEntry


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
        """Write the merged cache in one step; one that has all names already is left as it is."""
        folder = ensure_folder(syscalls, "/etc")
        cache, note, old = None, "", None
        status = syscalls.lstat(folder, "ld.so.cache")
        if status is not None:
            if not stat.S_ISREG(status.mode):
                raise name_taken(status.mode)
            old = syscalls.read_file(folder, "ld.so.cache", CACHE_LIMIT_BYTES)
            cache, note = _parse(old)
        merged = merge(cache, self.entries)
        if merged != old:
            syscalls.put_file(folder, "ld.so.cache", merged)
        return note


def _parse(data: bytes | None) -> tuple[LoaderCache | None, str]:
    if data is None:
        raise OSError(errno.EFBIG, f"larger than {CACHE_LIMIT_BYTES >> 20} MiB")
    try:
        return LoaderCache(data), ""
    except CacheError as reason:
        return None, f"the image's {reason}; written afresh"
