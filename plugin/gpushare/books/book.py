"""The books: Nodes and pods as the API server tells them, and what is promised to pods that are being bound.

Pure, but for being changed; of one thread. A unit counts as taken from the promise on until its pod has ended or is
gone, and on the card where the kubelet says it is as soon as it says so.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from plugin.gpushare.books.placement import CardUse, NodeUse, Refusal, best_card, place
from plugin.gpushare.books.pod_annotations import assumed_index, correction

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from plugin.gpushare.books.model import Card, Demand, Holding, Node, Pod, Report

PROMISE_S = 120.0  # longer than a call of the API takes, and than a watch is late


class Promise(NamedTuple):
    """A card that is kept for a pod on a node while it is bound. `until_s`: how long it counts."""

    pod: Pod
    node: str
    card: Card
    until_s: float


class Share(NamedTuple):
    """What a pod has, or will have, of a card; `card` None: it is not known which. `is_held`: the kubelet says so."""

    pod: Pod
    card: Card | None
    units: int
    is_held: bool


class Books:
    """Everything that is known of a cluster's memory units."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, Pod] = {}
        self._on: dict[str, dict[str, Pod]] = {}  # node → uid → pod
        self._promises: dict[str, dict[str, Promise]] = {}  # uid → node → promise
        self._promised: dict[str, dict[str, Promise]] = {}  # node → uid → the same
        self._uses: dict[str, NodeUse] = {}
        self._judged: dict[str, dict[Demand, Card | Refusal]] = {}
        self._changed: set[str] = set()

    # What the API server tells

    def node(self, name: str) -> Node | None:
        """Return a Node."""
        return self._nodes.get(name)

    def nodes(self) -> tuple[Node, ...]:
        """Return the Nodes that offer units or have pods with some, by name."""
        return tuple(
            node for name, node in sorted(self._nodes.items()) if node.report or node.allocatable or self._on.get(name)
        )

    def pod(self, uid: str) -> Pod | None:
        """Return a pod."""
        return self._pods.get(uid)

    def put_node(self, node: Node) -> None:
        """Take a Node as it is now."""
        if self._nodes.get(node.name) != node:
            self._nodes[node.name] = node
            self._forget(node.name)

    def remove_node(self, name: str) -> None:
        """Forget a Node."""
        self._nodes.pop(name, None)
        self._forget(name)

    def put_pod(self, pod: Pod) -> None:
        """Take a pod as it is now. A promise is kept for as long as the API server does not show the pod on a node."""
        self._take_off(pod.uid)
        self._pods[pod.uid] = pod
        if pod.node:
            self._on.setdefault(pod.node, {})[pod.uid] = pod
            self._forget(pod.node)
            self.break_promises(pod.uid)

    def remove_pod(self, uid: str) -> None:
        """Forget a pod: it has ended, or is gone. Its units are free."""
        self._take_off(uid)
        self._pods.pop(uid, None)
        self.break_promises(uid)

    def replace_nodes(self, nodes: Iterable[Node]) -> None:
        """Take all Nodes."""
        now = {node.name: node for node in nodes}
        for name in self._nodes.keys() - now.keys():
            self.remove_node(name)
        for node in now.values():
            self.put_node(node)

    def replace_pods(self, pods: Iterable[Pod]) -> None:
        """Take all pods. Promises outlive it: the list may be older than they are."""
        now = {pod.uid: pod for pod in pods}
        for uid in self._pods.keys() - now.keys():
            self._take_off(uid)
            del self._pods[uid]
        for pod in now.values():
            self.put_pod(pod)

    def _take_off(self, uid: str) -> None:
        before = self._pods.get(uid)
        if before is not None and before.node:
            on = self._on[before.node]
            del on[uid]
            if not on:
                del self._on[before.node]
            self._forget(before.node)

    # What is promised

    def promise(self, pod: Pod, node: str, now_s: float) -> Promise | Refusal:
        """Keep a card of a node for a pod that is about to be bound, the same one again if it is kept already."""
        kept = self._promises.get(pod.uid, {}).get(node)
        if kept is not None:
            self.break_promise(pod.uid, node)
        card = self.fits(pod, node, now_s)
        if isinstance(card, Refusal):
            if kept is not None:
                self._keep(kept)  # its outcome is not known: it may be bound there
            return card
        if kept is not None and kept.card.number in {each.card.number for each in self.use(node, now_s).cards}:
            card = kept.card if self._has_room(node, kept, now_s) else card
        return self._keep(Promise(pod, node, card, now_s + PROMISE_S))

    def _has_room(self, node: str, kept: Promise, now_s: float) -> bool:
        uses = {each.card: each for each in self.use(node, now_s).cards}
        return kept.card in uses and uses[kept.card].free >= kept.pod.demand.units

    def _keep(self, promise: Promise) -> Promise:
        self._promises.setdefault(promise.pod.uid, {})[promise.node] = promise
        self._promised.setdefault(promise.node, {})[promise.pod.uid] = promise
        self._forget(promise.node)
        return promise

    def break_promise(self, uid: str, node: str) -> None:
        """Keep nothing of this node for the pod any more."""
        if self._promises.get(uid, {}).pop(node, None) is not None:
            self._promised[node].pop(uid, None)
            self._forget(node)
        if not self._promises.get(uid, True):
            del self._promises[uid]
        if not self._promised.get(node, True):
            del self._promised[node]

    def break_promises(self, uid: str) -> None:
        """Keep nothing for the pod any more."""
        for node in tuple(self._promises.get(uid, ())):
            self.break_promise(uid, node)

    def expire(self, now_s: float) -> None:
        """Forget promises of which nothing was heard for so long that they were not kept."""
        for uid, promises in tuple(self._promises.items()):
            for node, promise in tuple(promises.items()):
                if promise.until_s <= now_s:
                    self.break_promise(uid, node)

    # What follows

    def fits(self, pod: Pod, node: str, now_s: float) -> Card | Refusal:
        """Return the card on which a pod would be placed, or why it cannot be."""
        use = self.use(node, now_s)
        judged = self._judged.setdefault(node, {})
        found = judged.get(pod.demand)
        if found is None:
            found = judged[pod.demand] = place(use, pod.demand)
        return found

    def fits_without(self, pod: Pod, node: str, uids: Container[str]) -> Card | Refusal:
        """Return the card on which a pod would be placed if these had left, or why it could not be."""
        return place(self._use(node, uids), pod.demand)

    def _forget(self, name: str) -> None:
        """Look at a node again: something about it has changed."""
        self._uses.pop(name, None)
        self._judged.pop(name, None)
        self._changed.add(name)

    def take_changed(self) -> set[str]:
        """Return the names of the Nodes that are judged differently, perhaps, than when this was last asked."""
        changed, self._changed = self._changed, set()
        return changed

    def use(self, name: str, now_s: float = 0.0) -> NodeUse:
        """Return what is known of a node's cards."""
        if any(promise.until_s <= now_s for promise in self._promised.get(name, {}).values()):
            self.expire(now_s)
        found = self._uses.get(name)
        if found is None:
            found = self._uses[name] = self._use(name)
        return found

    def _use(self, name: str, gone: Container[str] = ()) -> NodeUse:
        node = self._nodes.get(name)
        if node is None or node.report is None:
            return NodeUse(problem=node.problem if node is not None else "the node is not known")
        if not node.allocatable:
            return NodeUse(problem=f"the kubelet has no {node.report.resource} to give")
        shares = [share for share in self.shares(name) if share.pod.uid not in gone]
        return use_of(node.report, shares, max(0, node.report.units - node.allocatable))

    def shares(self, name: str) -> tuple[Share, ...]:
        """Return who has, or will have, units of a node; those that are held come first."""
        node = self._nodes.get(name)
        if node is None:
            return ()
        held = _held(node.report)
        shares = [share for pod in self._on.get(name, {}).values() for share in _shares(node.report, pod, held)]
        promised = self._promised.get(name, {}).values()
        shares += [Share(each.pod, each.card, each.pod.demand.units, is_held=False) for each in promised]
        return tuple(sorted(shares, key=lambda share: (not share.is_held, share.card is None)))

    def corrections(self, name: str) -> Iterator[tuple[Pod, Mapping[str, str | None]]]:
        """Return the pods of a node whose annotations do not say what they hold, and what has to change."""
        node = self._nodes.get(name)
        if node is None or node.report is None:
            return
        held, cards = _held(node.report), {card.uuid: card for card in node.report.cards}
        for pod in self._on.get(name, {}).values():
            holdings = held.get((pod.namespace, pod.name), ())
            if not _is_about(node.report, pod) or sum(each.units for each in holdings) < pod.demand.running:
                continue
            changes = correction(pod, holdings, cards, node.report.at_ns) if holdings else {}
            if changes:
                yield pod, changes


def use_of(report: Report, shares: Iterable[Share], withheld: int = 0) -> NodeUse:
    """Return what is known of cards, given who has units of them; where the card is not known, by the daemon's rule."""
    held: Counter[str] = Counter()
    assumed: Counter[str] = Counter()
    on_the_way: list[int] = []
    for share in shares:
        if share.is_held and share.card is not None:
            held[share.card.uuid] += share.units
            continue
        on_the_way += share.pod.demand.steps if share.units == share.pod.demand.units else (share.units,)
        card = share.card
        if card is None:
            likely = best_card(
                [CardUse(each, held[each.uuid], assumed[each.uuid]) for each in report.cards], share.units
            )
            card = likely.card if likely is not None else None
        if card is not None:
            assumed[card.uuid] += share.units
    cards = tuple(CardUse(card, held[card.uuid], assumed[card.uuid]) for card in report.cards)
    return NodeUse(cards, tuple(on_the_way), withheld)


def _held(report: Report | None) -> dict[tuple[str, str], tuple[Holding, ...]]:
    found: dict[tuple[str, str], tuple[Holding, ...]] = {}
    for each in report.holdings if report is not None else ():
        found[each.namespace, each.pod] = (*found.get((each.namespace, each.pod), ()), each)
    return found


def _is_about(report: Report, pod: Pod) -> bool:
    """Whether the kubelet was asked since the pod exists: before, it spoke of another one of its name."""
    return report.at_ns > pod.created_ns


def _shares(report: Report | None, pod: Pod, held: Mapping[tuple[str, str], tuple[Holding, ...]]) -> Iterator[Share]:
    """Return what a pod on a node has by the kubelet's word, and the rest, which it still has to get.

    What an init container has beyond the others is not listed by the kubelet, and stays on a card that is not known.
    """
    left, cards = pod.demand.units, {card.uuid: card for card in report.cards} if report is not None else {}
    if report is not None and _is_about(report, pod):
        for each in held.get((pod.namespace, pod.name), ()):
            yield Share(pod, cards[each.uuid], each.units, is_held=True)
            left -= each.units
    if left > 0:
        index = assumed_index(pod) if left == pod.demand.units else None
        card = next((card for card in cards.values() if card.number == index), None)
        yield Share(pod, card, left, is_held=False)
