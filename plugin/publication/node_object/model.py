"""The values that go to the API, and what is known to be there. Pure.

Times for people are UTC (RFC 3339, whole seconds); what is compared is monotonic seconds.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

TRUE, FALSE, UNKNOWN = "True", "False", "Unknown"


class Condition(NamedTuple):
    """A condition of the Node. `since`: when its status became this, "" where no change of it was seen."""

    kind: str
    status: str
    reason: str
    message: str
    since: str = ""


class Note(NamedTuple):
    """Something that happened. Notes with the same `series` are one event with a count."""

    is_warning: bool
    reason: str
    message: str
    subject: str = ""  # the GPU
    cause: str = ""

    @property
    def series(self) -> tuple[str, str, str]:
        """What makes two notes the same event."""
        return self.reason, self.subject, self.cause


class NodeFeature(NamedTuple):
    """What a NodeFeature object of this node says: attributes by feature, and those of each instance of a feature."""

    namespace: str
    labels: Mapping[str, str] = MappingProxyType({})
    attributes: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    instances: Mapping[str, tuple[Mapping[str, str], ...]] = MappingProxyType({})


class Eviction(NamedTuple):
    """A pod that is to go, and why. Another pod of its name has another uid."""

    namespace: str
    name: str
    uid: str
    why: str


class Wanted(NamedTuple):
    """What the Node should show. Empty conditions, labels None: not known yet, so nothing is said of them.

    `annotations` are single ones: those that are not named stay as they are, and None is for one that is to go.
    `feature` None: such an object was not asked for. `evictions`: pods of this node that are to go at the moment.
    """

    conditions: tuple[Condition, ...] = ()
    labels: Mapping[str, str] | None = None
    annotations: Mapping[str, str | None] = MappingProxyType({})
    feature: NodeFeature | None = None
    evictions: tuple[Eviction, ...] = ()


class Known(NamedTuple):
    """What the Node is known to show. `labels` None: ours were not applied yet. `annotations`: those that were sent.

    `refused`: labels that another field manager owns, with its name. `told_s`: when conditions were sent last,
    `heartbeat_s`: when they are sent again without a change. `feature`: the object that was applied last, at
    `feature_told_s`; it is applied again from `feature_due_s` on, for another program may have changed it.
    """

    uid: str
    conditions: Mapping[str, Condition] = MappingProxyType({})
    labels: Mapping[str, str] | None = None
    refused: Mapping[str, str] = MappingProxyType({})
    told_s: float = float("-inf")
    heartbeat_s: float = float("-inf")
    annotations: Mapping[str, str | None] = MappingProxyType({})
    feature: NodeFeature | None = None
    feature_told_s: float = float("-inf")
    feature_due_s: float = float("-inf")
