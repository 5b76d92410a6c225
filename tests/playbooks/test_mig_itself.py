"""The module `mig` and the facts, with the node daemon's own program and the simulated NVML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import pytest
from ansible_collections.grapnel.node.plugins.module_utils.daemon.mig import MigError, divide, read_mig
from ansible_collections.grapnel.node.plugins.module_utils.daemon.program import LAUNCHER
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Finished, Host

from provision.declaration.fleet.facts.mig import MigState
from provision.declaration.spec.model import Mig, StackSpec
from provision.planning.render.mig_layout import render_mig_layout
from tests.plugin.daemon.test_mig_of_daemon import CutNode

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

pytestmark = pytest.mark.functional


@dataclass(frozen=True)
class Program:
    """Runs the program of a node in the place of the one that would be installed."""

    node: CutNode

    def __call__(self, arguments: Sequence[str], timeout_s: float) -> Finished:
        assert arguments[:2] == [LAUNCHER, "mig"]
        assert timeout_s >= 60
        done = self.node.mig(arguments[2], *arguments[3:])
        return Finished(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def node(tmp_path: Path) -> CutNode:
    return CutNode(tmp_path)


def host_of(node: CutNode) -> Host:
    root = node.folder / "root"
    for path, text in ((LAUNCHER, ""), ("/sys/module/nvidia/version", "550.163.01\n")):
        place = root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return Host(root, Program(node))


def declare(node: CutNode, devices: dict[str, int] | None) -> None:
    """Write the layout as the planner has it written."""
    entry: dict[str, object] = {"devices": "all", "mig-enabled": devices is not None}
    entry |= {} if devices is None else {"mig-devices": devices}
    mig = msgspec.convert({"layout": "x", "config": {"version": "v1", "mig-configs": {"x": [entry]}}}, Mig)
    node.layout.write_text(render_mig_layout(StackSpec(mig=mig)) or "")


def told(host: Host) -> MigState:
    return msgspec.convert(read_mig(host), MigState)


def test_facts_tell_how_gpus_are_divided_before_and_after(node: CutNode) -> None:
    host = host_of(node)
    with node.served():
        before = told(host)
        declare(node, {"3g.20gb": 1, "MIG 1g.5gb": 2, "1c.2g.10gb": 1})
        planned = divide(host, "plan", 60)
        assert [gpu.devices for gpu in told(host).gpus] == [{}, {}], "a plan changes nothing"
        done = divide(host, "apply", 60)
        again = divide(host, "apply", 60)
        after = told(host)

    assert [(gpu.enabled, gpu.devices) for gpu in before.gpus] == [(False, {}), (False, {})]
    assert [gpu.uuid for gpu in before.gpus] == node.uuids
    assert {gpu.device_id for gpu in before.gpus} == {"20b010de"}
    assert any("turn mig mode on" in step for step in planned.steps)
    assert any("create 3g.20gb" in step for step in done.steps)
    assert again.steps == []
    assert [gpu.devices for gpu in after.gpus] == [{"3g.20gb": 1, "1g.5gb": 2, "1c.2g.10gb": 1}] * 2


def test_a_gpu_in_use_is_a_failure_with_the_pod(node: CutNode) -> None:
    host = host_of(node)
    with node.served():
        node.kubelet.wait_for_devices("nvidia.com/gpu", 2)
        node.admit("trains")
        declare(node, {"3g.20gb": 2})
        with pytest.raises(MigError, match="trains"):
            divide(host, "apply", 60)


def test_a_layout_that_is_wrong_for_the_node_changes_nothing_and_says_so(node: CutNode) -> None:
    host = host_of(node)
    with node.served():
        declare(node, {"1g.6gb": 1})
        with pytest.raises(MigError, match=r"1g\.6gb"):
            divide(host, "apply", 60)
    assert [gpu.enabled for gpu in told(host).gpus] == [False, False]
