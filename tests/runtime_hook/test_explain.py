"""``grapnel-hook explain``: the same decision as the hook's, offline, without root, for a bundle or a config.json."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from runtime_hook.commands.explain import Sources, explain
from runtime_hook.host.inventory import render_inventory
from tests.runtime_hook.containers import HOOK
from tests.runtime_hook.nodes import CONTROL, MIG, NUMBERS, inventory, uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

KEYS = {"entitled", "request", "devices", "capabilities", "requirements", "operations", "reason"}
ENV = {"entitlement": "env"}
CONTAINERD = {"io.kubernetes.cri.sandbox-namespace": "web", "io.kubernetes.cri.sandbox-name": "pod-1"}


class Desk:
    """A folder with a bundle, a policy and an inventory, as somebody would have copied them from a node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.chmod(0o755)
        (folder / "inventory.json").write_text(json.dumps(render_inventory(inventory(control=CONTROL[:2]))))

    def ask(self, policy: dict[str, Any], *env: str, **parts: Any) -> dict[str, Any]:
        """Explain a container; ``nodes`` are device nodes by path."""
        devices = [
            {"path": path, "type": "c", "major": NUMBERS[path][0], "minor": NUMBERS[path][1]}
            for path in parts.pop("nodes", ())
        ]
        content = {"process": {"env": list(env)}, "linux": {"devices": devices}, **parts}
        (self.folder / "config.json").write_text(json.dumps(content))
        (self.folder / "policy.json").write_text(json.dumps(policy))
        sources = Sources(str(self.folder), str(self.folder / "inventory.json"), str(self.folder / "policy.json"))
        return explain(sources)


@pytest.fixture
def desk() -> Iterator[Desk]:
    """A folder that every user can get to; pytest's own are root's."""
    with tempfile.TemporaryDirectory() as folder:
        yield Desk(Path(folder))


def test_a_grant_tells_devices_and_requirements(desk: Desk) -> None:
    told = desk.ask(ENV, "NVIDIA_VISIBLE_DEVICES=0,2:1", "NVIDIA_REQUIRE_CUDA=cuda>=99 arch>=8")
    assert set(told) >= KEYS
    assert (told["entitled"], told["refused"], told["source"]) == (True, None, "environment")
    assert told["devices"] == [
        {"uuid": uuid(0), "path": "/dev/nvidia0"},
        {"uuid": MIG[1].uuid, "path": "/dev/nvidia2", "nodes": [node.path for node in MIG[1].nodes]},
    ]
    assert [(each["gpu"], each["is_met"]) for each in told["requirements"]] == [(uuid(0), True), (uuid(2), True)]
    assert told["request"]["NVIDIA_REQUIRE_CUDA"] == "cuda>=99 arch>=8"


def test_a_requirement_that_is_not_met_is_told_with_its_term(desk: Desk) -> None:
    told = desk.ask({}, "NVIDIA_REQUIRE_CUDA=cuda>=99", nodes=["/dev/nvidia1"])
    assert told["entitled"] is False
    assert f"not met on {uuid(1)}: cuda>=99 fails, as cuda is 12.4" in told["refused"]
    assert [(each["gpu"], each["is_met"]) for each in told["requirements"]] == [(uuid(1), False)]
    assert told["operations"] == []


def test_the_policy_switches_requirements_off(desk: Desk) -> None:
    nodes = ["/dev/nvidia1", *(node.path for node in CONTROL[:2])]
    told = desk.ask({"disableRequire": True}, "NVIDIA_REQUIRE_CUDA=cuda>=99", nodes=nodes)
    assert (told["entitled"], told["requirements"]) == (True, [])


def test_a_denied_namespace_is_told(desk: Desk) -> None:
    rules = {"rules": [{"decision": "deny", "namespaces": ["web"]}, {"decision": "allow"}]}
    told = desk.ask(rules, nodes=["/dev/nvidia0"], annotations=CONTAINERD)
    assert (told["entitled"], told["namespace"], told["pod"]) == (False, "web", "pod-1")
    assert told["refused"].startswith("rules[0] denies GPUs for namespace web")
    nothing = desk.ask({**rules, **ENV}, "NVIDIA_VISIBLE_DEVICES=all", annotations=CONTAINERD)
    assert (nothing["entitled"], nothing["refused"]) == (False, None)
    assert nothing["reason"] == "rules[0] denies GPUs for namespace web"


def test_another_device_on_a_node_without_a_driver_is_not_refused(desk: Desk) -> None:
    """It was: ``explain`` and the hook decided for themselves."""
    (desk.folder / "policy.json").write_text("{}")
    fuse = {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}
    (desk.folder / "config.json").write_text(json.dumps({"linux": {"devices": [fuse]}}))
    told = explain(Sources(str(desk.folder), None, str(desk.folder / "policy.json"), str(desk.folder / "no-driver")))
    assert (told["entitled"], told["refused"]) == (False, None)
    assert "no NVIDIA driver libraries" in str(told["reason"])


def test_what_is_asked_for_is_told_whether_or_not_it_counts(desk: Desk) -> None:
    mount = {"source": "/dev/null", "destination": "/var/run/nvidia-container-devices/0"}
    told = desk.ask(
        {}, "NVIDIA_GDS=enabled", "PATH=/bin", mounts=[mount], annotations={"cdi.k8s.io/a": "nvidia.com/gpu=0"}
    )
    assert told["entitled"] is False
    assert told["reason"] == "volume mounts are no entitlement on this node"
    assert told["request"] == {
        "NVIDIA_VISIBLE_DEVICES": None,
        "NVIDIA_DRIVER_CAPABILITIES": None,
        "NVIDIA_GDS": "enabled",
        "mounts": ["0"],
        "cdiAnnotations": {"cdi.k8s.io/a": "nvidia.com/gpu=0"},
    }


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--policy", "--config"])
@pytest.mark.parametrize("target", ["", "config.json"])
def test_it_needs_neither_root_nor_the_node(desk: Desk, option: str, target: str) -> None:
    desk.ask({"entitlement": "env", "rules": [{"decision": "allow", "users": [1000]}]}, "NVIDIA_VISIBLE_DEVICES=none")
    for name in ("config.json", "policy.json", "inventory.json"):
        (desk.folder / name).chmod(0o666)
    argv = ["/usr/bin/python3", "-IS", str(HOOK), "explain", str(desk.folder / target), "--owner", "1000"]
    argv += [option, str(desk.folder / "policy.json"), "--inventory", str(desk.folder / "inventory.json")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", **somebody_else())
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["entitled"], told["devices"]) == (True, [])
    assert any("libcuda.so.550.163.01" in operation for operation in told["operations"])


def somebody_else() -> dict[str, Any]:
    """Return how to start a process without root's rights, where this checkout can be read without them."""
    if os.geteuid():
        return {}
    user = {"user": pwd.getpwnam("nobody").pw_uid, "extra_groups": []}
    readable = subprocess.run(["test", "-r", str(HOOK)], check=False, **user)
    return user if readable.returncode == 0 else {}
