"""A real API server: who may follow the label of a Node, and that a watch tells of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from plugin.publication.node_object.label_follower import LabelFollower
from plugin.settings.nvidia.table import CONFIG_LABEL
from tests.plugin.node_object.real_cluster import service_account
from tests.plugin.node_object.written_log import WrittenLog
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # etcd and an API server


def following(node: str, folder: Path, kubeconfig: str) -> tuple[LabelFollower, list[str], WrittenLog]:
    """Follow the label of a node; returns the follower, what is heard, and the log."""
    path = folder / "follower.conf"
    path.write_text(kubeconfig)
    heard: list[str] = []
    logger = WrittenLog()
    follower = LabelFollower(node, CONFIG_LABEL, str(path), {}, heard.append, logger)
    follower.start()
    return follower, heard, logger


@pytest.mark.parametrize("roles", [(), ("node-config",)], ids=["by the kubelet's credentials", "by the role of a pod"])
def test_a_label_is_followed(control_plane: ControlPlane, node: str, tmp_path: Path, roles: tuple[str, ...]) -> None:
    kubelets = control_plane.render_kubeconfig(control_plane.certificates.prepare_node(node))
    kubeconfig = service_account(control_plane, "following", *roles) if roles else kubelets
    follower, heard, logger = following(node, tmp_path, kubeconfig)
    wait_until(lambda: bool(heard), logger.text)
    assert not heard[-1]
    control_plane.kubectl(["label", "node", node, f"{CONFIG_LABEL}=a100"])
    wait_until(lambda: heard[-1] == "a100", logger.text)
    control_plane.kubectl(["label", "node", node, f"{CONFIG_LABEL}-"])
    wait_until(lambda: not heard[-1], logger.text)
    assert not logger.lines("level=warning")
    follower.stop()


def test_a_kubelet_is_not_told_of_another_node(control_plane: ControlPlane, node: str, tmp_path: Path) -> None:
    other = control_plane.render_kubeconfig(control_plane.certificates.prepare_node("other"))
    follower, heard, logger = following(node, tmp_path, other)
    wait_until(lambda: bool(logger.lines("the api server forbids watch nodes")), logger.text)
    assert heard == []
    follower.stop()
