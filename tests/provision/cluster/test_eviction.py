"""What the answers to an eviction mean; the real ones are in ``test_kubernetes_itself``."""

from __future__ import annotations

import pytest

from provision.cluster.errors import ForbiddenError
from provision.cluster.kubernetes.api.client import Api
from provision.cluster.kubernetes.api.exchange import ApiResponse
from provision.cluster.kubernetes.pods.eviction import evict
from provision.rollout.interface.cluster import Eviction, EvictionOutcome
from provision.rollout.model import GpuPod
from tests.provision.cluster.fakes import Clock, ScriptedServer, answer, refusal

POD = GpuPod(namespace="ml", name="web", uid="u1", is_terminating=False, is_mirror_or_daemon=False)
NEEDS_TWO = "The disruption budget web-budget needs 2 healthy pods and has 2 currently"
# As registry/core/pod/storage/eviction.go words it.
FORBIDDEN = 'poddisruptionbudget.policy "web-budget" is forbidden'
IS_BROKEN = (
    "The disruption budget web-budget does not allow evicting pods currently: pdb disruptions allowed is negative"
)


def ask(refused: ApiResponse) -> tuple[Eviction, ScriptedServer]:
    server = ScriptedServer(refused)
    clock = Clock()
    return evict(Api(server, sleep=clock.sleep, clock=clock), POD), server


@pytest.mark.parametrize(
    ("refused", "expected"),
    [
        pytest.param(answer(201), Eviction(outcome=EvictionOutcome.EVICTED), id="accepted"),
        pytest.param(refusal(404, "not found"), Eviction(outcome=EvictionOutcome.GONE), id="gone"),
        pytest.param(
            refusal(409, "Precondition failed: UID in precondition: u1, UID in object meta: u2"),
            Eviction(outcome=EvictionOutcome.GONE),
            id="another pod of that name",
        ),
        pytest.param(
            refusal(429, "Cannot evict pod as it would violate the pod's disruption budget.", causes=(NEEDS_TWO,)),
            Eviction(outcome=EvictionOutcome.BLOCKED, reason=NEEDS_TWO),
            id="a budget",
        ),
        pytest.param(
            refusal(403, f"{FORBIDDEN}: pdb disruptions allowed is negative", causes=(IS_BROKEN,)),
            Eviction(outcome=EvictionOutcome.BLOCKED, reason=IS_BROKEN),
            id="a budget that forbids, from Kubernetes 1.37 on",
        ),
        pytest.param(
            refusal(403, f"{FORBIDDEN}: pdb disruptions allowed is negative"),
            Eviction(outcome=EvictionOutcome.BLOCKED, reason=f"{FORBIDDEN}: pdb disruptions allowed is negative"),
            id="a budget that forbids, until Kubernetes 1.36",
        ),
        pytest.param(
            refusal(429, "too many requests"),
            Eviction(outcome=EvictionOutcome.BLOCKED, reason="too many requests"),
            id="a busy server",
        ),
        pytest.param(
            refusal(403, 'admission webhook "guard" denied the request: not now'),
            Eviction(outcome=EvictionOutcome.BLOCKED, reason='admission webhook "guard" denied the request: not now'),
            id="a webhook",
        ),
        pytest.param(
            refusal(409, "conflict with something else"),
            Eviction(outcome=EvictionOutcome.BLOCKED, reason="conflict with something else"),
            id="another conflict",
        ),
        pytest.param(
            refusal(
                500, "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
            ),
            Eviction(
                outcome=EvictionOutcome.BLOCKED,
                reason="several disruption budgets select it, and no such pod can be evicted: remove all but one",
            ),
            id="two budgets",
        ),
        pytest.param(
            ApiResponse(code=502, body=b"<html>", headers={}),
            Eviction(outcome=EvictionOutcome.BLOCKED, reason="the API server answers 502"),
            id="a proxy's error",
        ),
    ],
)
def test_an_answer_means(refused: ApiResponse, expected: Eviction) -> None:
    found, server = ask(refused)

    assert found == expected
    assert len(server.requests) == 1


def test_the_request_is_for_that_very_pod_and_has_no_grace_period_of_its_own() -> None:
    _found, server = ask(answer(201))

    (request,) = server.requests
    assert request.path == "/api/v1/namespaces/ml/pods/web/eviction"
    assert request.body is not None
    assert request.body["deleteOptions"] == {"preconditions": {"uid": "u1"}}


def test_not_being_allowed_to_evict_is_no_reason_to_wait() -> None:
    with pytest.raises(ForbiddenError, match="ada may not create pods/eviction in namespace ml on cluster x"):
        ask(
            refusal(
                403,
                'forbidden: User "ada" cannot create resource "pods/eviction" in API group "" in the namespace "ml"',
            )
        )
