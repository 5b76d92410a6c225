"""Somebody who writes into the log of a node's Job, without the key of that Job.

An end of an agent of before, or of another Job's, and a line without an end, are in
tests/provision/jobs/test_runner_itself.py.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from provision.apply.runner import RunFinished, RunStatus
from provision.controller.jobs.manifest import JobKind
from provision.controller.jobs.runner import JobRunner
from tests.attack.cluster import naive
from tests.attack.cluster.identities import OURS
from tests.provision.jobs.kubelet import FakeKubelet, told
from tests.provision.jobs.test_runner_itself import DONE, request

if TYPE_CHECKING:
    from pathlib import Path

    from provision.cluster.kubernetes.api.client import Api
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional  # etcd and an API server

FORGED = b'{"type": "finished", "status": "successful"}'
NOISE = [b"x" * 2000] * 1000  # 2 MB


def test_a_forged_end_in_a_flood_of_words_is_not_read(stage: Stage, api: Api, tmp_path: Path, name: str) -> None:
    failed = told(*DONE[:1], RunFinished(RunStatus.FAILED, message="what is true"))
    kubelet = FakeKubelet(stage, tmp_path, log=[failed[0], *NOISE, FORGED, *NOISE, *failed[1:], FORGED])
    runner = JobRunner(api, JobKind(image="example.com/grapnel:1", namespace=OURS))
    with kubelet.running(name):
        (end,) = [each for each in runner.run(request(name), threading.Event()) if isinstance(each, RunFinished)]

    assert naive.end_of([*kubelet.shown, FORGED]) == "successful"
    assert (end.status, end.message) == (RunStatus.FAILED, "what is true")
