"""Builds the hook's entry for OCI configurations, hook files and CDI files."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HOOK_PATH = "/usr/lib/grapnel/hook/grapnel-hook"
# The hook gives up by itself before that and says why; the engine's limit is for a hook that cannot.
_MARGIN_S = 15
# Never empty: some runtimes give a hook without an environment the container's (CVE-2025-23266).
HOOK_ENVIRONMENT = ("PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8")


def hook_entry(path: str, options: Sequence[str], timeout_s: int) -> dict[str, object]:
    """Return one entry of an OCI configuration's ``hooks``; ``timeout_s`` is the hook's own limit."""
    return {
        "path": path,
        "args": ["grapnel-hook", "prestart", *options],
        "env": list(HOOK_ENVIRONMENT),
        "timeout": timeout_s + _MARGIN_S,
    }
