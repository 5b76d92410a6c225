"""A password in the engine's configuration of a booted node: nobody sees it who could not before."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from lab.nodes import Node
    from tests.journey.conftest import Controller

pytestmark = pytest.mark.nodes

SECRET = "hunter2hunter2"  # noqa: S105 - what must not be seen
AUTH = f"""
[plugins."io.containerd.grpc.v1.cri".registry.configs."registry.example".auth]
password = "{SECRET}"
"""
CONFIG, DROP_IN = "etc/containerd/config.toml", "etc/containerd/conf.d/99-nvidia.toml"


def test_a_password_of_the_engine_reaches_its_files_and_nothing_else(gpu_node: Node, controller: Controller) -> None:
    config, linked = gpu_node.root / CONFIG, gpu_node.root / "etc/containerd/site.toml"
    good = config.read_text()
    config.unlink()
    linked.write_text(good + AUTH)
    linked.chmod(0o600)
    config.symlink_to("site.toml")
    try:
        planned = controller.grapnel("plan", "--json", "n1")
        applied = controller.grapnel("apply", "--yes", "n1")
        drop_in = gpu_node.root / DROP_IN
        state = (drop_in.stat().st_mode & 0o777, SECRET in drop_in.read_text(), config.is_symlink())
        again = controller.plan_items("n1")
        log = gpu_node.run(["journalctl", "--no-pager"]).stdout
    finally:
        config.unlink()
        linked.unlink()
        config.write_text(good)
        controller.converge("n1")

    assert (planned.returncode, applied.returncode) == (0, 0), planned.stdout + applied.stdout + applied.stderr
    assert '"withheld": true' in planned.stdout
    assert SECRET not in planned.stdout + planned.stderr + applied.stdout + applied.stderr + log
    assert "ansible" in log
    assert state == (0o600, True, True)
    assert again == []
