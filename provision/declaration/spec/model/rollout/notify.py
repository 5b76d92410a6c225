"""Defines who is told of a rollout: a part of the section `rollout`."""

from __future__ import annotations

from enum import Enum
from typing import Annotated, Final

from provision.declaration.spec.model.section import Section, doc
from provision.declaration.spec.model.texts import ControllerFilePath, WebhookUrl


class News(Enum):
    """What a receiver may be told."""

    ROLLOUT_STARTED = "rollout.started"
    ROLLOUT_STOPPED = "rollout.stopped"
    ROLLOUT_ENDED = "rollout.ended"
    WAVE_STARTED = "wave.started"
    NODE_STARTED = "node.started"
    NODE_DONE = "node.done"
    NODE_FAILED = "node.failed"
    NODE_RETURNED = "node.returned"


USUAL: Final = (
    News.ROLLOUT_STARTED,
    News.ROLLOUT_STOPPED,
    News.ROLLOUT_ENDED,
    News.WAVE_STARTED,
    News.NODE_FAILED,
    News.NODE_RETURNED,
)


class NodeConditions(Enum):
    """Conditions that may be written on a Node."""

    UPGRADE = "upgrade"
    LIFECYCLE = "lifecycle"


class Notify(Section, frozen=True, kw_only=True):
    """A receiver of signed webhooks. Its files are on the machine that runs grapnel: no secret is in a declaration."""

    url: Annotated[WebhookUrl | None, doc("Where messages are sent; null: it is in urlFile.")] = None
    url_file: Annotated[
        ControllerFilePath | None,
        doc("A file on the machine that runs grapnel with the URL, for one that is a secret itself; null: url has it."),
    ] = None
    secret_file: Annotated[
        ControllerFilePath,
        doc("A file on the machine that runs grapnel with the key that messages are signed with: whsec_ and base64."),
    ]
    events: Annotated[tuple[News, ...], doc("What is told.", uniqueItems=True)] = USUAL
