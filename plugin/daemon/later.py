"""What a running daemon needs, and its first device list does not: loaded a moment after it.

Not at the first use: by then another release may have taken the place of this one's files. Not here: metrics and the
API client, which most daemons never load; theirs are loaded where they are switched on.
"""

from __future__ import annotations

from importlib import import_module

AFTER_S = 0.5
MODULES = (
    "plugin.allocation.preference.choice",
    "plugin.history.store",
    "plugin.history.view",
    "plugin.labels.host",
    "plugin.labels.node_labels",
    "plugin.labels.file",
)


def load_the_rest() -> None:
    """Load what is not loaded yet; 10 ms in all."""
    for name in MODULES:
        import_module(name)
