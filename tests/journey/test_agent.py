"""A booted node is provisioned from a container's side: through the namespaces of its first process, without ssh."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from lab.nodes import NodeSpec
from provision.apply.runner import RunFinished, RunStatus, TaskDone
from provision.controller.jobs.seal import JOB_UID, SEAL_KEY, Seal
from provision.controller.jobs.wire import SCHEMA, LineReader
from tests.journey.conftest import VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from lab.nodes import Site
    from tests.journey.conftest import Controller

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(600)]

NAME = "entered"


def test_a_node_is_provisioned_through_its_namespaces(site: Site, controller: Controller, tmp_path: Path) -> None:
    node = site.up(NodeSpec(NAME, suite="trixie", gpus=2, driver_module=VERSION, packages=("containerd",)))
    variables = {"ansible_connection": "grapnel.node.host", "ansible_grapnel_host_pid": node.machine.leader()}
    inventory = tmp_path / "inventory.yaml"
    inventory.unlink()
    inventory.write_text(json.dumps({"all": {"hosts": {NAME: variables}}}))

    done = controller.call("apply")

    assert done.returncode == 0, done.stdout + done.stderr
    assert controller.plan_items(NAME, "--no-cluster") == []
    assert node.run(["nvidia-smi", "-L"]).stdout.count("GPU-") == 2
    facts = _agent(tmp_path, node.machine.leader())
    assert facts["node"]["hostname"] == node.run(["hostname"]).stdout.strip()
    assert node.run(["sh", "-c", "ls -A /root/.ansible/tmp 2>/dev/null"], check=False).stdout == ""
    site.remove(NAME)


def _agent(folder: Path, pid: int) -> dict[str, dict[str, str]]:
    """Have the agent gather the node's facts, as in a Job."""
    request = folder / "request.json.gz"
    document = {"schema": SCHEMA, "node": NAME, "playbook": "facts", "keep": ["facts"]}
    seal = Seal.fresh("0f6a")
    (folder / SEAL_KEY).write_bytes(seal.key)
    (folder / JOB_UID).write_text(seal.job)
    request.write_bytes(gzip.compress(json.dumps(document).encode()))
    script = "import sys; from provision.cli import main; sys.exit(main())"
    command = [sys.executable, "-P", "-c", script, "agent", "--request", str(request), "--host-pid", str(pid)]
    found = subprocess.run(command, capture_output=True, check=True)
    events = list(LineReader(NAME, seal, frozenset({"facts"})).read(found.stdout.splitlines()))
    assert isinstance(events[-1], RunFinished)
    assert events[-1].status is RunStatus.SUCCESSFUL, events[-1]
    (gathered,) = [event.values["facts"] for event in events if isinstance(event, TaskDone) and "facts" in event.values]
    answer: dict[str, dict[str, str]] = json.loads(gathered)
    return answer
