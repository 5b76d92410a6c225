"""Serves the ComputeDomains of a cluster, on a thread of its own: watches them, decides, and writes.

Which clique is whose is kept in a ConfigMap that nobody else may write, and written there before a node may read it in
a domain's status. It is replaced on the version that was read, so of two that both believe that they lead one is told.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from provision.base.decoding import decoder_of
from provision.cluster.errors import RefusedError
from provision.cluster.kubernetes.api.client import CONFLICT, NOT_FOUND
from provision.cluster.kubernetes.api.exchange import MERGE_PATCH, Request, StatusError
from provision.cluster.kubernetes.objects.claims import DescribedSlice
from provision.cluster.kubernetes.objects.nodes import Node
from provision.cluster.kubernetes.watch.informer import NODES
from provision.cluster.kubernetes.watch.watcher import Source, Watcher
from provision.controller.domains.decide import Hold, admit, is_served, left_by, status_of, why_not_free, why_not_served
from provision.controller.domains.objects import (
    DOMAINS,
    DRIVER,
    GROUP,
    ChannelClaim,
    ComputeDomain,
    ConfigMap,
    Owned,
    place_of,
    template_of,
    wish_of,
)
from provision.rollout.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.controller.domains.decide import Ledger

LEDGER: Final = "grapnel-compute-domains"
_KEY: Final = "cliques.json"
_DRA: Final = "/apis/resource.k8s.io/v1"
_CLAIMS, _SLICES = f"{_DRA}/resourceclaims", f"{_DRA}/resourceslices"
_OF_DRIVER: Final = f"spec.driver={DRIVER}"
_AGAIN_S: Final = 300.0  # when all is as it has to be: a template may have been deleted
_SOON_S: Final = 10.0  # while a clique waits for its nodes to be free, a template for its name, or something failed
_LATER_S: Final = 60.0  # where the cluster has no ComputeDomains
_REST_S: Final = 0.2
_PATIENCE_S: Final = 5.0
_MAX_TOLD: Final = 500  # of an answer in a status, whose message has 1,024 characters at most
V = TypeVar("V")


class _Book(Generic[V]):
    """What is known of a collection; what a `Watcher` fills. ``keep`` returns what matters of an object, or None."""

    def __init__(self, keep: Callable[[Any], V | None], wake: Callable[[], None]) -> None:
        self._keep, self._wake = keep, wake
        self._mutex = threading.Lock()
        self._known: dict[tuple[str, str], V] = {}
        self._listed: dict[tuple[str, str], V] = {}

    def all(self) -> list[V]:
        with self._mutex:
            return list(self._known.values())

    def begin(self) -> None:
        self._listed = {}

    def add(self, thing: Any) -> None:
        if (kept := self._keep(thing)) is not None:
            self._listed[thing.metadata.namespace, thing.metadata.name] = kept

    def settle(self, version: str) -> None:  # whatever was known before is replaced
        with self._mutex:
            self._known = self._listed
        self._wake()

    def change(self, kind: str, thing: Any) -> None:
        key = (thing.metadata.namespace, thing.metadata.name)
        kept = None if kind == "DELETED" else self._keep(thing)
        with self._mutex:
            before = self._known.pop(key, None)
            if kept is not None:
                self._known[key] = kept
        if before != kept:
            self._wake()

    def reach(self, version: str) -> None:
        """Nothing depends on it."""


class DomainDesk:
    """Serves ComputeDomains from `start` to `close`; ``acting`` is fenced by the lease of who leads."""

    def __init__(self, api: Api, acting: Api, namespace: str, *, say: Callable[[str], None]) -> None:
        self._api, self._acting, self._say = api, acting, say
        self._maps = f"/api/v1/namespaces/{quote(namespace, safe='')}/configmaps"
        self._wake, self._stop = threading.Event(), threading.Event()
        self._domains = _Book[ComputeDomain](lambda thing: thing, self._wake.set)
        self._wishes = _Book(wish_of, self._wake.set)
        self._places = _Book(place_of, self._wake.set)
        self._thread = threading.Thread(target=self._run, name="compute domains", daemon=True)
        self._addresses: dict[str, str] = {}
        self._made_s: dict[str, float] = {}  # when the template of a domain was seen last, by its uid
        self._told = ""
        self._waiting: dict[str, str] = {}  # why a clique is not free yet
        self._lacks = False  # a template: it may be that of a domain of before, which is about to go

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def check(self) -> None:
        """Raise ClusterError where it has come to an end by itself: no domain would be served any more."""
        if self._thread.ident is not None and not self._thread.is_alive():
            raise ClusterError("what serves ComputeDomains has ended by a bug", hint="its traceback is in the log")

    def close(self) -> None:
        """Return when nothing more is done."""
        self._stop.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._is_served():
                    self._follow()
            except ClusterError as error:
                self._tell(_words(error))
            self._stop.wait(_LATER_S if self._told else 0)

    def _tell(self, text: str) -> None:
        """Say what is wrong, once."""
        if text and text != self._told:
            self._say(f"ComputeDomains: {text}")
        self._told = text

    def _is_served(self) -> bool:
        try:
            self._api.call(Request(method="GET", path=GROUP), msgspec.Raw, expected=(NOT_FOUND,))
        except StatusError:
            self._tell("the cluster does not serve them: kubectl apply -f deploy/crd/computedomains.yaml")
            return False
        return True

    def _follow(self) -> None:
        """Serve until stopped; raises ClusterError where a watch fails for good."""
        watchers: list[Watcher[Any]] = [
            Watcher(self._api, Source(path=_SLICES, item=DescribedSlice, selector=_OF_DRIVER), self._places),
            Watcher(self._api, Source(path=DOMAINS, item=ComputeDomain), self._domains),
            Watcher(self._api, Source(path=_CLAIMS, item=ChannelClaim), self._wishes),
        ]
        try:
            for watcher in watchers:
                watcher.start()
            while not self._stop.is_set():
                self._wake.clear()
                for watcher in watchers:
                    watcher.check()
                try:
                    self._round()
                    self._tell("")
                except ClusterError as error:
                    self._tell(_words(error))
                self._wake.wait(_SOON_S if self._waiting or self._lacks or self._told else _AGAIN_S)
                self._stop.wait(_REST_S)
        finally:
            for watcher in watchers:
                watcher.stop()
            for watcher in watchers:
                watcher.join()

    def _round(self) -> None:
        """Bring everything to where it has to be. Raises ClusterError."""
        domains = {each.metadata.uid: each for each in self._domains.all()}
        wishes, places = self._wishes.all(), {each.node: each for each in self._places.all()}
        found = self._read()
        before: Ledger = {} if found is None else _decode(found)
        decision = admit(self._without_free(before, domains), domains, wishes, places)
        if decision.ledger != before:
            self._write(found, decision.ledger)
        refused, self._lacks = None, False
        for uid, domain in domains.items():
            if domain.is_going or domain.is_of_another:
                continue
            trouble = why_not_served(domain) or self._template(domain)
            self._lacks |= bool(trouble) and is_served(domain)
            nodes = [node for hold in decision.ledger.values() if hold.domain == uid for node in hold.nodes]
            addresses = {node: self._address(node) for node in nodes}
            status = status_of(domain, decision, places, addresses, trouble)
            try:
                if status != domain.status:
                    self._write_status(domain, status)
            except RefusedError as error:  # of this one, by a webhook: it costs no other domain its own
                refused = error
        if refused is not None:
            raise refused
        self._made_s = {uid: made_s for uid, made_s in self._made_s.items() if uid in domains}

    def _without_free(self, ledger: Ledger, domains: Mapping[str, ComputeDomain]) -> Ledger:
        """Return the cliques that are still taken: of a domain that is there, or whose nodes are not free."""
        left = {clique: hold for clique, hold in left_by(ledger, domains).items() if self._is_gone(hold)}
        if not left:
            self._waiting = {}
            return ledger
        # Only now: what these say was true after the domain was gone, so no node can have begun with it since.
        slices = self._api.list_all(_SLICES, DescribedSlice, selector=_OF_DRIVER)
        fresh = {place.node: place for each in slices if (place := place_of(each)) is not None}
        waiting = {}
        for clique, hold in left.items():
            gone = {node for node in hold.nodes if node not in fresh and self._read_node(node) is None}
            if why := why_not_free(hold, fresh, gone):
                waiting[clique] = why
                if self._waiting.get(clique) != why:
                    self._say(f"clique {clique} of ComputeDomain {hold.namespace}/{hold.name}, which is gone: {why}")
        self._waiting = waiting
        return {clique: hold for clique, hold in ledger.items() if clique not in left or clique in waiting}

    def _is_gone(self, hold: Hold) -> bool:
        """Tell whether a domain is gone, or going, by the API's own word."""
        path = f"{GROUP}/namespaces/{quote(hold.namespace, safe='')}/computedomains/{quote(hold.name, safe='')}"
        try:
            found = self._api.call(Request(method="GET", path=path), ComputeDomain, expected=(NOT_FOUND,))
        except StatusError:
            return True
        return found.metadata.uid != hold.domain or found.is_going

    def _template(self, domain: ComputeDomain) -> str:
        """Make the ResourceClaimTemplate of a domain; returns why it has none, "" where it has."""
        uid, now_s = domain.metadata.uid, time.monotonic()
        if now_s - self._made_s.get(uid, -_AGAIN_S) < _AGAIN_S:
            return ""
        name = domain.spec.channel.resource_claim_template.name
        path = f"{_DRA}/namespaces/{quote(domain.metadata.namespace, safe='')}/resourceclaimtemplates"
        try:
            found = self._acting.call(
                Request(method="GET", path=f"{path}/{quote(name, safe='')}"), Owned, expected=(NOT_FOUND,)
            )
            owner = found.metadata.controller
            if owner is None or owner.uid != uid:
                return f"ResourceClaimTemplate {name} is there already, and is not of this ComputeDomain"
        except StatusError:
            try:
                self._acting.call(
                    Request(method="POST", path=path, body=template_of(domain)), msgspec.Raw, expected=(CONFLICT,)
                )
            except StatusError:
                return f"ResourceClaimTemplate {name} was made by somebody else just now"
            except RefusedError as error:  # a quota is used up, the namespace goes, it is no name
                return f"ResourceClaimTemplate {name} cannot be made: {error.message[:_MAX_TOLD]}"
        except RefusedError as error:
            return f"ResourceClaimTemplate {name} cannot be read: {error.message[:_MAX_TOLD]}"
        self._made_s[uid] = now_s
        return ""

    def _write_status(self, domain: ComputeDomain, status: Mapping[str, Any]) -> None:
        """Replace the status of the domain of that uid; one that is gone meanwhile needs none."""
        meta = domain.metadata
        path = f"{GROUP}/namespaces/{quote(meta.namespace, safe='')}/computedomains/{quote(meta.name, safe='')}/status"
        body = {"metadata": {"uid": meta.uid}, "status": status}
        request = Request(method="PATCH", path=path, body=body, content_type=MERGE_PATCH)
        try:
            self._acting.call(request, msgspec.Raw, expected=(CONFLICT, NOT_FOUND), patience_s=_PATIENCE_S)
        except StatusError:
            return

    def _read(self) -> ConfigMap | None:
        try:
            return self._acting.call(
                Request(method="GET", path=f"{self._maps}/{LEDGER}"), ConfigMap, expected=(NOT_FOUND,)
            )
        except StatusError:
            return None

    def _write(self, found: ConfigMap | None, ledger: Ledger) -> None:
        """Remember whose cliques are; raises ClusterError, also where another process has written meanwhile."""
        metadata = {"name": LEDGER} | ({} if found is None else {"resourceVersion": found.metadata.resource_version})
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            "data": {_KEY: msgspec.json.encode(ledger, order="sorted").decode()},
        }
        path = self._maps if found is None else f"{self._maps}/{LEDGER}"
        self._acting.call(Request(method="POST" if found is None else "PUT", path=path, body=body), msgspec.Raw)

    def _address(self, node: str) -> str:
        if not self._addresses.get(node) and (found := self._read_node(node)) is not None:
            inner = (each.address for each in found.status.addresses if each.type == "InternalIP")
            self._addresses[node] = next(inner, "")
        return self._addresses.get(node, "")

    def _read_node(self, name: str) -> Node | None:
        try:
            path = f"{NODES}/{quote(name, safe='')}"
            return self._api.call(Request(method="GET", path=path), Node, expected=(NOT_FOUND,))
        except StatusError:
            return None


def _words(error: ClusterError) -> str:
    return f"{error.message}{f' ({error.hint})' if error.hint else ''}"


def _decode(found: ConfigMap) -> Ledger:
    """Return whose cliques are; raises ClusterError: who has which is not guessed."""
    try:
        return decoder_of(dict[str, Hold]).decode((found.data or {}).get(_KEY, "{}"))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ClusterError(
            f"ConfigMap {LEDGER} cannot be read: {error}", hint="delete it when no pod has a claim of a ComputeDomain"
        ) from error
