"""Renders the choice of a dnf module stream: its packages are hidden from dnf as long as the stream is not enabled.

The file is what ``dnf module enable`` writes (dnf's modularity documentation, "modules.d"). Writing it changes streams
as ``dnf module switch-to`` does, without moving a package. It belongs to a driver change, which names exact packages
and does not need the stream; whoever updates the node afterwards does.
"""

from __future__ import annotations

from provision.planning.node_plan import FileContent

FOLDER = "/etc/dnf/modules.d"


def render_stream(stream: str | None) -> tuple[FileContent, ...]:
    """Return the file that enables ``module:stream``, none where there is none."""
    if stream is None:
        return ()
    module, _, name = stream.partition(":")
    lines = [f"[{module}]", f"name={module}", f"stream={name}", "profiles=", "state=enabled", ""]
    return (FileContent(f"{FOLDER}/{module}.module", "\n".join(lines)),)
