"""What is read of Jobs and their pods."""

from __future__ import annotations

import pytest
from msgspec import convert

from provision.jobs.node_run import _how_ended
from provision.jobs.objects import AgentPod, Job


@pytest.mark.parametrize(
    ("conditions", "failure"),
    [
        ([], ""),
        ([{"type": "Complete", "status": "True"}], ""),
        ([{"type": "Failed", "status": "True", "message": "it failed"}], "it failed"),
        ([{"type": "Failed", "status": "False", "message": "no"}], ""),
        # On a node that has gone its pod never ends, and Failed never comes.
        ([{"type": "FailureTarget", "status": "True", "message": "too late"}], "too late"),
        ([{"type": "SuccessCriteriaMet", "status": "True"}], ""),
    ],
)
def test_a_job_has_failed_as_soon_as_that_is_certain(conditions: list[dict[str, str]], failure: str) -> None:
    assert convert({"metadata": {}, "status": {"conditions": conditions}}, Job).failure == failure


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"state": {"running": {}}}, ""),
        ({"state": {"terminated": {"exitCode": 0}}}, ""),
        (
            {"state": {"terminated": {"exitCode": 127, "message": "grapnel: not found\n"}}},
            " (the agent ended with 127: grapnel: not found)",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}},
            },
            " (the agent ended with 1: Error)",
        ),
    ],
)
def test_an_agent_that_ends_badly_is_quoted(status: dict[str, object], words: str) -> None:
    """Its Job had reached its backoff limit, and nobody knew of what."""
    pod = convert({"metadata": {}, "status": {"containerStatuses": [{"name": "agent", **status}]}}, AgentPod)
    assert _how_ended(pod) == words
