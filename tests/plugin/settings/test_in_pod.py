"""What a pod makes of the host's configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugin.settings.in_pod import as_in_pod
from plugin.settings.node_config import NodeConfig

if TYPE_CHECKING:
    from pathlib import Path

HOST = NodeConfig(resource="example.com/gpu", kubernetes_api="/etc/kubernetes/kubelet.conf")


def test_it_has_its_service_account_and_no_hook(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    config = as_in_pod(HOST, token)
    assert (config.kubernetes_api, config.hook_path, config.resource) == ("in-cluster", None, "example.com/gpu")


def test_without_a_service_account_it_does_not_use_the_api(tmp_path: Path) -> None:
    assert as_in_pod(HOST, tmp_path / "token").kubernetes_api == ""
