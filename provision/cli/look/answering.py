"""What `grapnel explain` of pods, nodes and claims has in common: what may be asked, Events, and the answer's form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote

from provision.cluster.errors import ForbiddenError, RefusedError
from provision.cluster.kubernetes.objects.core import Event
from provision.report.console import Text
from provision.report.terminal import hanging

if TYPE_CHECKING:
    from collections.abc import Callable

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.nodes.pod_reasons import PodReasons
    from provision.report.progress.watching import Drawing

_LABEL: Final = 11  # columns, as `grapnel status NODE` has them
_EVENTS: Final = 3
T = TypeVar("T")


def tried(ask: Callable[[], T], what: str, unread: list[str]) -> T | None:
    """Return what the API server says; None where it may not be asked, which is noted."""
    try:
        return ask()
    except (ForbiddenError, RefusedError) as error:
        unread.append(f"{what}: {error.message}")
        return None


def newest(api: Api, namespace: str, selector: str, *, named: bool = False) -> list[str]:
    """Return the last Events that are selected, each in its newest words, the newest first. Raises ClusterError."""
    events = api.list_all(folder(namespace, "events"), Event, selector=selector)
    events.sort(key=lambda each: int(each.metadata.resource_version or 0), reverse=True)
    told: dict[tuple[str, str], str] = {}
    for each in events:
        who = f"{each.involved_object.kind}/{each.involved_object.name}"
        told.setdefault((who, each.reason), f"{who}: {each.message}" if named else f"{each.reason}: {each.message}")
    return list(told.values())[:_EVENTS]


def folder(namespace: str, what: str) -> str:
    """Return the path of a namespace's objects."""
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/{what}"


def rendered(answer: PodReasons) -> Drawing:
    """Return an answer as a terminal has it."""
    lines = [hanging(Text(f"  {label.ljust(_LABEL - 2)}  ", "dim"), Text(text)) for label, text in answer.facts]
    todo = [hanging(Text("  do         ", "bold green"), Text(each)) for each in answer.todo]
    return (*((Text(answer.head, "bold cyan"),) if answer.head else ()), *lines, *todo)
