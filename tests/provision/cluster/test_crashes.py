"""Runs and API server that are killed or unavailable: all of them real processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision.rollout.errors import HeldError, LeaseLostError, UnreachableError
from provision.rollout.model import NodeView
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from tests.provision.cluster.stage import Stage

pytestmark = pytest.mark.functional

ROOT = Path(__file__).parents[3]
LEASE = ("lease", "grapnel-upgrade", "--namespace", "kube-system")


@contextlib.contextmanager
def engine(stage: Stage, holder: str) -> Iterator[subprocess.Popen[str]]:
    """Run another engine that holds the lease."""
    command = [sys.executable, "-P", str(Path(__file__).with_name("hold_lease.py"))]
    with subprocess.Popen(
        [*command, str(stage.control_plane.kubeconfig), holder],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield process
        finally:
            process.kill()


def test_a_killed_engine_locks_others_out_for_a_while_but_not_itself(stage: Stage) -> None:
    with engine(stage, "ada@laptop") as process:
        process.send_signal(signal.SIGKILL)
        process.wait()

    with pytest.raises(HeldError, match="ada@laptop is changing nodes of"), stage.connect().lease("bob@ci"):
        pytest.fail("two engines at once")
    with stage.connect().lease("ada@laptop"):
        pass
    with stage.connect().lease("bob@ci"):
        pass


def test_an_interrupted_engine_gives_it_back(stage: Stage) -> None:
    with engine(stage, "ada@laptop") as process:
        process.send_signal(signal.SIGINT)
        process.wait()

    with stage.connect().lease("bob@ci"):
        pass


@pytest.mark.usefixtures("often_renewed")
def test_who_lost_it_changes_nothing_more(stage: Stage) -> None:
    cluster, node = stage.connect(), stage.make_node()
    cluster.observe([node])

    with cluster.lease("ada@laptop"):
        cluster.write(node, RECORD, cordoned=True)
        # At once: one that is deleted is made again by ada's next renewal, unless bob is quicker.
        stage.kubectl("patch", *LEASE, "--type=merge", "-p", '{"spec": {"holderIdentity": "bob@ci"}}')
        with stage.connect().lease("bob@ci"):
            wait_until(lambda: is_lost(cluster, node), "the loss is noticed at the next renewal")

    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    assert seen.record == RECORD
    assert seen.is_cordoned


def is_lost(cluster: KubernetesCluster, node: str) -> bool:
    try:
        cluster.write(node, RECORD)
    except LeaseLostError as error:
        return "bob@ci took it" in error.message
    return False


def test_an_api_server_that_restarts_is_waited_for(stage: Stage) -> None:
    cluster, node = stage.connect(), stage.make_node()
    cluster.observe([node])
    stage.control_plane.kill()
    with pytest.raises(UnreachableError, match="connection refused"):
        stage.connect()

    written = threading.Thread(target=lambda: cluster.write(node, RECORD, cordoned=True))
    written.start()
    stage.control_plane.start(is_bound=True)
    written.join(timeout=60)

    seen = cluster.observe([node])[node]
    assert isinstance(seen, NodeView)
    assert seen.record == RECORD
