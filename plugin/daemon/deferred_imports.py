"""Imports that the first device list does not need: done a moment after it, which saves 30 ms of CPU before it.

Not at the first use: by then this version's files may have been replaced by another's. Not here: metrics and the
API client, which most daemons never load; theirs are loaded where they are switched on.
"""

from __future__ import annotations

from importlib import import_module

AFTER_S = 0.5
MODULES = (
    "plugin.devices.allocation.preference.choice",
    "plugin.drift.result",
    "plugin.holdings.history.store",
    "plugin.holdings.history.view",
    "plugin.publication.labels.features",
    "plugin.publication.labels.host",
    "plugin.publication.labels.node_labels",
    "plugin.publication.labels.file",
)


def load_deferred() -> None:
    """Import what is not imported yet."""
    for name in MODULES:
        import_module(name)
