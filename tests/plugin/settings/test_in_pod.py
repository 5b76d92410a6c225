"""What a pod makes of the host's configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from plugin.base.errors import ClusterError
from plugin.publication.node_object.api.credentials import Credentials
from plugin.settings.in_pod import as_in_pod
from plugin.settings.node_config import NodeConfig

if TYPE_CHECKING:
    from pathlib import Path

HOST = NodeConfig(resource="example.com/gpu", kubernetes_api="/etc/kubernetes/kubelet.conf")


def test_it_has_its_service_account_and_runs_no_hook(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    config = as_in_pod(HOST, token)
    assert (config.kubernetes_api, config.in_pod, config.resource) == ("in-cluster", True, "example.com/gpu")
    assert config.hook_path == HOST.hook_path, "engines run it"


def test_without_a_service_account_it_does_not_use_the_api(tmp_path: Path) -> None:
    assert as_in_pod(HOST, tmp_path / "token").kubernetes_api == ""


@pytest.mark.parametrize("interface", ["dra", "both"])
def test_claims_take_a_service_account_and_say_so_where_there_is_none(tmp_path: Path, interface: str) -> None:
    config = as_in_pod(replace(HOST, interface=interface, claims=("0",)), tmp_path / "token")
    environment = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(ClusterError, match="no token of a service account") as raised:
        Credentials(config.kubernetes_api, environment, tmp_path).current()
    assert "nodeDaemon.kubernetesApi" in raised.value.hint
