"""What programs of the fake machine answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished


def as_document(cut: str) -> dict[str, object]:
    """Return an instance such as 9@0, a profile and its place, as the program writes it."""
    profile, start = map(int, cut.split("@"))
    return {"profile": profile, "start": start, "size": 1, "slices": []}


def finished(return_code: int, stdout: str = "", stderr: str = "") -> Finished:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished  # noqa: PLC0415 - see conftest

    return Finished(return_code, stdout, stderr)
