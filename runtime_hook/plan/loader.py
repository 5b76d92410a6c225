"""Plans what makes the loader of an image find the libraries. Pure."""

from __future__ import annotations

from runtime_hook.container.operations.loadercache import MergeLoaderCache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from runtime_hook.container.operations.operation import Operation
    from runtime_hook.host.platforms import Platform
    from runtime_hook.loadercache.cache import CacheEntry
    from runtime_hook.plan.layout import Layout


def plan_loader(entries: list[CacheEntry], layout: Layout, platform: Platform) -> list[Operation]:
    """Return the operations for the driver's names; an image of musl alone has no cache to write."""
    if not entries:
        return []
    if layout.is_musl:
        from runtime_hook.container.operations.loaderpaths import ListMuslFolder  # noqa: PLC0415 - few images

        return [ListMuslFolder(layout.library_folder, platform.multiarch.partition("-")[0])]
    compat = layout.compat
    if compat is None:
        return [MergeLoaderCache(tuple(entries))]
    from runtime_hook.container.operations.loaderpaths import ListCompatFolder  # noqa: PLC0415 - few images

    merged = MergeLoaderCache((*compat.entries, *entries))
    return [ListCompatFolder(compat.folder, is_used=compat.is_used, reason=compat.reason), merged]
