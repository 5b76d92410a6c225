"""What serves ComputeDomains beside an API that refuses, forgets and is told odd things: one domain costs no other."""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import Stream
from provision.controller.domains import desk
from provision.controller.domains.desk import DomainDesk
from provision.controller.domains.objects import DOMAINS, DRIVER, GROUP
from tests.provision.cluster.fakes import answer, refusal
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.exchange import ApiResponse, Request

_DRA = "/apis/resource.k8s.io/v1"
_SLICES, _CLAIMS = f"{_DRA}/resourceslices", f"{_DRA}/resourceclaims"
_LEDGER = "/api/v1/namespaces/grapnel-system/configmaps"
Json = dict[str, Any]


class Cluster:
    """An API server in memory: objects by path, lists of three collections, and watches that say nothing."""

    name = "cluster x"

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.lists: dict[str, list[Json]] = defaultdict(list)
        self.refused: dict[str, ApiResponse] = {}  # answers, by path
        self.written: dict[str, tuple[str, str]] = {}  # by path of a list: what of its text is another text
        self.ended = threading.Event()

    def add_domain(self, name: str, namespace: str = "team", **spec: Any) -> Json:
        channel = {"resourceClaimTemplate": {"name": f"{name}-channel"}}
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}"}
        made = {"metadata": metadata, "spec": {"numNodes": 0, "channel": channel, **spec}}
        self.lists[DOMAINS].append(made)
        self.objects[f"{GROUP}/namespaces/{namespace}/computedomains/{name}"] = made
        return made

    def template(self, name: str, namespace: str = "team") -> str:
        return f"{_DRA}/namespaces/{namespace}/resourceclaimtemplates/{name}"

    def status(self, name: str, namespace: str = "team") -> Json:
        found: Json = self.objects[f"{GROUP}/namespaces/{namespace}/computedomains/{name}"].get("status", {})
        return found

    def send(self, request: Request) -> ApiResponse:
        path = unquote(request.path)
        if path in self.refused:
            return self.refused[path]
        if request.method == "GET":
            if path in {DOMAINS, _SLICES, _CLAIMS}:
                found = answer(200, {"metadata": {"resourceVersion": "1"}, "items": self.lists[path]})
                before, after = self.written.get(path, ("", ""))
                return replace(found, body=found.body.replace(before.encode(), after.encode())) if before else found
            return answer(200, self.objects[path]) if path in self.objects else refusal(404)
        assert request.body is not None
        if request.method == "POST":
            path = f"{path}/{request.body['metadata']['name']}"
        if request.method == "PATCH":
            self.objects[path.removesuffix("/status")]["status"] = request.body["status"]
        else:
            self.objects[path] = json.loads(json.dumps(request.body))
        return answer(200, self.objects.get(path, {}))

    def stream(self, _request: Request) -> Stream:
        return Stream(code=200, headers={}, lines=self._lines(), close=self.ended.set, release=lambda: None)

    def _lines(self) -> Iterator[bytes]:
        self.ended.wait()
        yield from ()


@contextmanager
def serving(cluster: Cluster) -> Iterator[list[str]]:
    """Serve until the end; yields what is said."""
    cluster.objects[GROUP] = {}
    said: list[str] = []
    api = Api(cluster)
    made = DomainDesk(api, api, "grapnel-system", say=said.append)
    made.start()
    try:
        yield said
        made.check()
    finally:
        cluster.ended.set()
        made.close()


@pytest.mark.parametrize(
    ("path", "code", "why"),
    [
        ("", 403, "exceeded quota: small"),
        ("", 403, "namespace full is being terminated"),
        ("", 422, "not a DNS name"),
        ("/first-channel", 301, "no name of an object"),
    ],
)
def test_a_domain_whose_template_is_refused_costs_no_other_domain_its_own(path: str, code: int, why: str) -> None:
    """Whoever may make ComputeDomains in a namespace with a quota kept all others of the cluster waiting."""
    cluster = Cluster()
    cluster.add_domain("first", "full")
    cluster.add_domain("second")
    cluster.refused[f"{_DRA}/namespaces/full/resourceclaimtemplates{path}"] = refusal(code, why)
    with serving(cluster) as said:
        wait_until(lambda: cluster.template("second-channel") in cluster.objects, lambda: f"no template: {said}")
        wait_until(lambda: cluster.status("second").get("status") == "Ready", lambda: f"no status: {said}")
        assert why in cluster.status("first", "full")["message"]


def test_a_status_that_is_refused_costs_no_other_domain_its_own() -> None:
    cluster = Cluster()
    cluster.add_domain("first")
    cluster.add_domain("second")
    cluster.refused[f"{GROUP}/namespaces/team/computedomains/first/status"] = refusal(422, "a webhook says no")
    with serving(cluster) as said:
        wait_until(lambda: cluster.status("second").get("status") == "Ready", lambda: f"no status: {said}")
        wait_until(lambda: any("a webhook says no" in each for each in said), lambda: f"nothing is said: {said}")


def test_a_domain_made_anew_has_its_template_when_that_of_the_one_before_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The garbage collector takes the old one away a moment later, and nothing is heard of that."""
    monkeypatch.setattr(desk, "_SOON_S", 0.05)
    cluster = Cluster()
    cluster.add_domain("train")
    owner = {"kind": "ComputeDomain", "name": "train", "uid": "uid-before", "controller": True}
    template = cluster.template("train-channel")
    cluster.objects[template] = {"metadata": {"name": "train-channel", "ownerReferences": [owner]}}
    with serving(cluster) as said:
        wait_until(lambda: "is there already" in cluster.status("train").get("message", ""), lambda: str(said))
        del cluster.objects[template]
        wait_until(lambda: template in cluster.objects, lambda: f"no template: {said}")
        wait_until(lambda: cluster.status("train")["status"] == "Ready", lambda: str(cluster.status("train")))


def test_the_address_of_a_node_that_had_none_yet_is_in_the_status_once_it_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(desk, "_AGAIN_S", 0.05)
    cluster = Cluster()
    uid = cluster.add_domain("train")["metadata"]["uid"]
    cluster.lists[_SLICES].append(_slice("n1"))
    cluster.lists[_CLAIMS].append(_claim("n1", {"kind": "ComputeDomainChannelConfig", "domainID": uid}))
    cluster.objects["/api/v1/nodes/n1"] = {"metadata": {"name": "n1"}, "status": {"addresses": []}}

    def addresses() -> list[str]:
        return [each["ipAddress"] for each in cluster.status("train").get("nodes", [])]

    with serving(cluster) as said:
        wait_until(lambda: addresses() == [""], lambda: f"not in it: {said}")
        here = [{"type": "InternalIP", "address": "10.0.0.1"}]
        cluster.objects["/api/v1/nodes/n1"] = {"metadata": {"name": "n1"}, "status": {"addresses": here}}
        wait_until(lambda: addresses() == ["10.0.0.1"], lambda: f"{addresses()}, {said}")


def _slice(node: str) -> Json:
    device = {"name": "channel-0", "attributes": {"clique": {"string": "x.1"}}}
    spec = {"driver": DRIVER, "nodeName": node, "pool": {"name": node}, "devices": [device]}
    return {"metadata": {"name": f"{node}-channel"}, "spec": spec}


def _claim(node: str, parameters: Json) -> Json:
    result = {"request": "channel", "driver": DRIVER, "pool": node, "device": "channel-0"}
    devices = {"results": [result], "config": [{"opaque": {"driver": DRIVER, "parameters": parameters}}]}
    return {"metadata": {"name": "c", "namespace": "team"}, "status": {"allocation": {"devices": devices}}}


@pytest.mark.parametrize("value", ["[" * 1500 + "]" * 1500, '"\\ud800"'])
def test_a_claim_with_what_cannot_be_read_keeps_no_domain_from_being_served(value: str) -> None:
    """Whoever may make claims ended the controller with one: the API takes what is nested this deeply."""
    cluster = Cluster()
    cluster.lists[_CLAIMS].append(_claim("n1", {"kind": "marked"}))
    cluster.written[_CLAIMS] = ('"marked"', value)
    cluster.add_domain("first")
    with serving(cluster) as said:
        wait_until(lambda: any("first-channel" in path for path in cluster.objects), lambda: f"{said}")
    assert said == []
