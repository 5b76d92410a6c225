"""Failing requests: which are retried, for how long, and with which message."""

from __future__ import annotations

import msgspec
import pytest

from provision.cluster.errors import ForbiddenError, KubeconfigError, RefusedError
from provision.cluster.kubernetes.api.client import PAGE, PATIENCE_S, Api
from provision.cluster.kubernetes.api.exchange import ApiResponse, Request, StatusError
from provision.cluster.kubernetes.objects.nodes import Node
from provision.rollout.errors import ClusterError, LeaseLostError, UnreachableError
from tests.provision.cluster.fakes import Clock, ScriptedServer, answer, refusal

GONE = UnreachableError("cluster x does not answer: connection refused")
GET = Request(method="GET", path="/api/v1/nodes/n1")
NODE = answer(200, {"metadata": {"name": "n1"}})


def api_of(server: ScriptedServer, clock: Clock | None = None) -> Api:
    clock = clock or Clock()
    return Api(server, sleep=clock.sleep, clock=clock)


def test_what_passes_is_tried_again_ever_more_slowly() -> None:
    clock = Clock()
    server = ScriptedServer(GONE, refusal(503), refusal(500), GONE, refusal(504), NODE)

    found = api_of(server, clock).call(GET, Node)

    assert found.metadata.name == "n1"
    assert clock.slept == [0.25, 0.5, 1.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("last", "error"), [(GONE, UnreachableError), (refusal(503, "apiserver is shutting down"), RefusedError)]
)
def test_patience_ends(last: ApiResponse | UnreachableError, error: type[ClusterError]) -> None:
    clock = Clock()

    with pytest.raises(error):
        api_of(ScriptedServer(last), clock).call(GET, Node)

    assert PATIENCE_S - 2 <= sum(clock.slept) <= PATIENCE_S


def test_without_patience_there_is_one_attempt() -> None:
    server = ScriptedServer(GONE)

    with pytest.raises(UnreachableError):
        api_of(server).greet()

    assert len(server.requests) == 1


def test_a_server_that_is_busy_says_how_long_to_wait_within_reason() -> None:
    clock = Clock()
    server = ScriptedServer(
        refusal(429, headers={"Retry-After": "3"}),
        refusal(429, headers={"Retry-After": "600"}),
        refusal(429, headers={"Retry-After": "x"}),
        NODE,
    )

    api_of(server, clock).call(GET, Node)

    assert clock.slept == [3.0, 5.0, 1.0]


def test_a_refusal_is_not_tried_again() -> None:
    server = ScriptedServer(refusal(422, "no"))

    with pytest.raises(RefusedError, match="cluster x answers 422: no"):
        api_of(server).call(GET, Node)

    assert len(server.requests) == 1


def test_who_knows_what_a_code_means_gets_it() -> None:
    with pytest.raises(StatusError) as raised:
        api_of(ScriptedServer(refusal(404, "not found"))).call(GET, Node, expected=(404,))

    assert raised.value.code == 404


def test_a_missing_permission_is_named_with_the_rule_that_grants_it() -> None:
    words = (
        'leases.coordination.k8s.io "grapnel-upgrade" is forbidden: User "ada" cannot update resource "leases" in API '
    )
    words += 'group "coordination.k8s.io" in the namespace "kube-system"'

    with pytest.raises(ForbiddenError) as raised:
        api_of(ScriptedServer(refusal(403, words))).call(GET, Node, expected=(403,))

    assert raised.value.message == "ada may not update leases in namespace kube-system on cluster x"
    rule = '{apiGroups: ["coordination.k8s.io"], resources: ["leases"], verbs: ["update"]}'
    assert raised.value.hint == f"deploy/rbac/operator.yaml grants it; the rule: {rule}"


@pytest.mark.parametrize(
    "refused",
    [refusal(401, "Unauthorized"), refusal(403, 'nodes is forbidden: User "system:anonymous" cannot get path "/api"')],
    ids=["unauthorized", "anonymous"],
)
def test_credentials_that_are_not_accepted(refused: ApiResponse) -> None:
    with pytest.raises(KubeconfigError, match="cluster x does not accept the credentials"):
        api_of(ScriptedServer(refused)).call(GET, Node)


def test_a_webhook_is_quoted() -> None:
    with pytest.raises(RefusedError, match='answers 403: admission webhook "x" denied the request'):
        api_of(ScriptedServer(refusal(403, 'admission webhook "x" denied the request'))).call(GET, Node)


@pytest.mark.parametrize("code", [200, 404])
def test_a_proxy_that_answers_in_its_place_is_suspected(code: int) -> None:
    page = ApiResponse(code=code, body=b"<html>please log in</html>", headers={})

    with pytest.raises(
        RefusedError, match=r"does not answer as a Kubernetes API server does|answers 404: no reason given"
    ):
        api_of(ScriptedServer(page)).call(GET, Node)


def page(names: list[str], following: str = "") -> ApiResponse:
    items = [{"metadata": {"name": name}} for name in names]
    return answer(200, {"metadata": {"continue": following}, "items": items})


def test_a_list_is_read_page_by_page() -> None:
    server = ScriptedServer(page(["a", "b"], "t1"), page(["c"], "t2"), page([]))

    found = api_of(server).list_all("/api/v1/nodes", Node, selector="a=b")

    assert [node.metadata.name for node in found] == ["a", "b", "c"]
    assert [request.query for request in server.requests] == [
        {"limit": PAGE, "fieldSelector": "a=b"},
        {"limit": PAGE, "fieldSelector": "a=b", "continue": "t1"},
        {"limit": PAGE, "fieldSelector": "a=b", "continue": "t2"},
    ]


@pytest.mark.parametrize("written", ["[" * 4000 + '"]"' + "]" * 4000, '"\\ud800"', '"\\\\\\ud800 \\ud83d\\ude00"'])
def test_what_somebody_wrote_into_one_object_hides_no_other(written: str) -> None:
    """An API server passes on what a claim's author wrote for a driver, of any depth and with halves of characters."""
    first = f'{{"metadata": {{"name": "a", "resourceVersion": "8"}}, "spec": {{"x": {written}}}}}'
    items = f'{{"metadata": {{"resourceVersion": "7"}}, "items": [{first}, {{"metadata": {{"name": "b\\u00e9"}}}}]}}'
    event = f'{{"type": "ADDED", "object": {first}}}'
    bodies = (items, f"{event}\n{event}")
    server = ScriptedServer(*(ApiResponse(code=200, body=body.encode(), headers={}) for body in bodies))

    api = api_of(server)

    assert [node.metadata.name for node in api.list_all("/api/v1/nodes", Node)] == ["a", "bé"]
    changes = api.changes("/api/v1/nodes", Node, "7", 1)
    assert changes is not None
    assert ([each.metadata.name for _, each in changes[0]], changes[1]) == (["a", "a"], "8")


def test_a_list_whose_resource_version_expired_is_read_again() -> None:
    server = ScriptedServer(page(["a"], "t1"), refusal(410, "expired"), page(["b"], "t2"), page(["c"]))

    assert [node.metadata.name for node in api_of(server).list_all("/api/v1/nodes", Node)] == ["b", "c"]


def test_a_list_that_is_always_forgotten_is_given_up() -> None:
    with pytest.raises(RefusedError, match="410"):
        api_of(ScriptedServer(refusal(410, "expired"))).list_all("/api/v1/nodes", Node)


def test_the_time_is_the_servers() -> None:
    clock = Clock()
    api = api_of(ScriptedServer(answer(200, {}, {"Date": "Sat, 21 Nov 2026 09:30:00 GMT"})), clock)
    api.call(GET, msgspec.Raw)
    clock.now += 12.5

    assert api.now().isoformat() == "2026-11-21T09:30:12.500000+00:00"


def test_a_guard_is_asked_before_every_attempt() -> None:
    clock, server = Clock(), ScriptedServer(GONE)
    plain = api_of(server, clock)

    def guard() -> None:
        if clock.slept:
            raise LeaseLostError("lost meanwhile")

    with pytest.raises(LeaseLostError):
        plain.guarded(guard).call(GET, Node)

    assert len(server.requests) == 1
    server.answers.append(NODE)
    plain.call(GET, Node)  # it is not asked for the others
