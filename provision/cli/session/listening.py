"""Opens whoever is told of a rollout: receivers of webhooks, a file of metrics, the Nodes themselves."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from provision.cluster.kubernetes.nodes.others import UPGRADE_CONDITION
from provision.cluster.kubernetes.notices import LIFECYCLE
from provision.declaration.spec.model import NodeConditions
from provision.report.notify.listeners import Listeners, Webhooks
from provision.report.notify.metrics_file import MetricsFile
from provision.report.notify.news import Newsroom
from provision.report.notify.receivers import read_receivers
from provision.report.notify.webhook import Webhook

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from provision.cli.session.scope import Scope
    from provision.declaration.spec.model import Notify
    from provision.report.notify.listeners import Listener


def open_listeners(scope: Scope, *, holder: str, metrics_file: Path | None = None) -> Listeners:
    """Return those that the declarations name, and whoever reads ``metrics_file``.

    Raises GrapnelError for one that could not be told anything.
    """
    declared = [receiver for stack in scope.stacks.values() for receiver in stack.rollout.notify]
    found: list[Listener] = [_webhooks(scope, declared)] if declared else []
    found += _reporters(scope)
    if metrics_file is not None:
        found.append(MetricsFile(metrics_file, place=scope.cluster.name, holder=holder))
    return Listeners(found)


def _webhooks(scope: Scope, declared: Sequence[Notify]) -> Webhooks:
    """Return what tells the receivers; raises GrapnelError."""
    newsroom = Newsroom(scope.cluster.name, f"rollout-{secrets.token_hex(6)}")
    return Webhooks([Webhook(receiver) for receiver in read_receivers(declared)], newsroom)


def _reporters(scope: Scope) -> list[Listener]:
    """Return what writes on Nodes, where there are any: a cluster of Kubernetes, or one of several that is."""
    rollouts = [stack.rollout for stack in scope.stacks.values()]
    events = any(rollout.node_events for rollout in rollouts)
    declared = {kind for rollout in rollouts for kind in rollout.node_conditions}
    if scope.kubernetes is None or not (events or declared):
        return []
    kinds = [UPGRADE_CONDITION] if NodeConditions.UPGRADE in declared else []
    kinds += LIFECYCLE if NodeConditions.LIFECYCLE in declared else []
    return [scope.kubernetes.reporter(events=events, kinds=kinds)]
