"""What `skip`, `retry` and `abandon` have in common: find the nodes, ask for it, tell what that means for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from provision.base.errors import ExitCode, UsageError
from provision.cli.session.fleet import named_nodes
from provision.cli.session.places import find_places
from provision.cluster.node_requests import KubernetesRequests, StateFileRequests

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping

    from provision.cli.answers import Answers
    from provision.cluster.node_requests import NodeRequests
    from provision.rollout.requests import Decide


@dataclass(frozen=True, slots=True)
class Asking:
    """The nodes that something is asked of, each with where that is written down.

    ``scheduled`` are those that a scheduler other than Kubernetes has.
    """

    requests: Mapping[str, NodeRequests]
    scheduled: frozenset[str] = frozenset()

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes, in the inventory's order."""
        return tuple(self.requests)

    def only(self, nodes: Collection[str]) -> Asking:
        """Return the same for some of the nodes."""
        return Asking({node: each for node, each in self.requests.items() if node in nodes}, self.scheduled)


def open_requests(args: argparse.Namespace) -> Asking:
    """Return the nodes that are named, hosts or groups of the inventory, and where their state lives."""
    if not (nodes := named_nodes(args)):
        raise UsageError("say which nodes", hint=f"grapnel {args.verb} NODE...")
    places = find_places(args, *nodes)
    requests: dict[str, NodeRequests] = {}
    if places.api is not None and places.in_cluster:
        kubernetes = KubernetesRequests(places.api, places.in_cluster, places.machines)
        requests |= dict.fromkeys(places.in_cluster, kubernetes)
    requests |= dict.fromkeys(places.in_file, StateFileRequests(places.state_file, places.in_file))
    return Asking(requests, places.scheduled)


def ask(asking: Asking, decide: Decide, answers: Answers) -> int:
    """Ask it of every node, and tell what that means; return 1 if it makes no sense for one of them."""
    is_refused = False
    for node, requests in asking.requests.items():
        answer = requests.change(node, decide)
        is_refused = is_refused or answer.is_refused
        for line in answer.words:
            answers.say(line, node, is_refused=answer.is_refused)
    return ExitCode.FAILED if is_refused else ExitCode.DONE


def foresee(asking: Asking, decide: Decide, answers: Answers) -> int:
    """Tell what `ask` would change and say of every node, and change nothing; return the same."""
    is_refused = False
    for node, requests in asking.requests.items():
        answer = requests.foresee(node, decide)
        is_refused = is_refused or answer.is_refused
        answers.would(node, answer.steps)
        for line in answer.words:
            answers.say(line, node, is_refused=answer.is_refused)
    return ExitCode.FAILED if is_refused else ExitCode.DONE


def at_work(asking: Asking) -> tuple[str, str]:
    """Return who is at work, and who leads the controller; each is empty where none does."""
    looks = [requests.reader().look() for requests in dict.fromkeys(asking.requests.values())]
    engines = [each.tenant.holder for each in looks if each.tenant is not None and each.tenant.is_at_work]
    leaders = [each.controller.holder for each in looks if each.controller is not None and each.is_led]
    return next(iter(engines), ""), next(iter(leaders), "")
