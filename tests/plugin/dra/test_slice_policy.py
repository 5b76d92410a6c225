"""Which ResourceSlices whoever is on a node may write, on a real API server: by Kubernetes alone, and by our policy."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.machine.errors import CommandError
from plugin.base.log import Logger
from plugin.dra.devices import DRIVER, DraDevice
from plugin.dra.domains.decision import DRIVER as DOMAINS
from plugin.dra.keeper import SliceKeeper
from plugin.dra.slices import Owner, plan_writes
from plugin.kubelet.cdi_names import OTHERS
from tests.plugin.daemon_process import REPOSITORY
from tests.plugin.node_object.real_cluster import register
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

    Writer = Callable[..., str]

pytestmark = pytest.mark.functional  # etcd and an API server

POLICY = REPOSITORY / "deploy/dra/slicepolicy.yaml"
MINE, OTHER = "writes-slices", "has-slices"
NAMESPACE = "slices"
RIGHTS = {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["*"]}


def slice_of(control_plane: ControlPlane, node: str, *, name: str = "", pool: str = "", **spec: Any) -> dict[str, Any]:
    """Return a slice as the daemon writes it, or with something else in it."""
    uid = control_plane.kubectl(["get", "node", node, "-o", "jsonpath={.metadata.uid}"])
    device = DraDevice("gpu-0", "GPU-0", ("GPU-0",), (), {"type": {"string": "gpu"}}, {})
    (write,) = plan_writes(Owner(node, uid), [device], [])
    assert write.document is not None
    made = write.document
    made["metadata"]["name"] = name or f"{made['metadata']['name']}-by-test"
    made["spec"]["pool"]["name"] = pool or node
    made["spec"] |= spec
    return made


@pytest.fixture(scope="module")
def server(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with two Nodes, and an account that may write every slice, as a DRA driver's in a DaemonSet may."""
    for name in (MINE, OTHER):
        register(control_plane, name)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "any-slice"}}
    control_plane.ensure_namespace(NAMESPACE)
    control_plane.kubectl(["create", "serviceaccount", "driver", "-n", NAMESPACE])
    control_plane.kubectl(["create", "-f", "-"], input_text=json.dumps(role | {"rules": [RIGHTS]}))
    binding = ["create", "clusterrolebinding", "any-slice", "--clusterrole=any-slice"]
    control_plane.kubectl([*binding, f"--serviceaccount={NAMESPACE}:driver"])
    yield control_plane
    control_plane.kubectl(["delete", "resourceslices", "--all"])
    control_plane.kubectl(["delete", "--ignore-not-found", "-f", str(POLICY)])
    control_plane.kubectl(["delete", "node", MINE, OTHER])


def writer(control_plane: ControlPlane, kubeconfig: str, folder: Path) -> Writer:
    """Return what writes with credentials; "" where it was done, else what the API server says."""
    path = folder / "kubeconfig"
    path.write_text(kubeconfig)
    path.chmod(0o600)

    def write(verb: str, document: dict[str, Any], *options: str) -> str:
        command = [verb, "-f", "-", "--kubeconfig", str(path), *options]
        try:
            control_plane.kubectl(command, input_text=json.dumps(document))
        except CommandError as error:
            return str(error.hint)
        return ""

    return write


@pytest.fixture(scope="module")
def kubelet(server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Writer:
    """The identity of a node, which the daemon there uses."""
    config = server.render_kubeconfig(server.certificates.prepare_node(MINE))
    return writer(server, config, tmp_path_factory.mktemp("kubelet"))


@pytest.fixture(scope="module")
def account(server: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Writer:
    """The token of a pod of that account on the node."""
    container = {"name": "driver", "image": "none"}
    spec = {"nodeName": MINE, "serviceAccountName": "driver", "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver", "namespace": NAMESPACE}, "spec": spec}
    server.kubectl(["create", "-f", "-"], input_text=json.dumps(body))
    bound = ["--bound-object-kind=Pod", "--bound-object-name=driver"]
    token = server.kubectl(["create", "token", "driver", "-n", NAMESPACE, *bound]).strip()
    config = json.loads(server.render_kubeconfig("admin"))
    config["users"][0]["user"] = {"token": token}
    return writer(server, json.dumps(config), tmp_path_factory.mktemp("account"))


def clear(server: ControlPlane) -> None:
    server.kubectl(["delete", "resourceslices", "--all"])


def test_kubernetes_alone_holds_a_kubelet_to_its_node_and_nobody_to_a_pool(
    server: ControlPlane, kubelet: Writer, account: Writer
) -> None:
    assert "same NodeName" in kubelet("create", slice_of(server, OTHER))
    assert kubelet("create", slice_of(server, MINE, pool=OTHER)) == ""
    assert account("create", slice_of(server, OTHER)) == ""
    clear(server)


def test_a_name_that_is_taken_keeps_no_node_from_publishing(server: ControlPlane, tmp_path: Path) -> None:
    """A kubelet's identity may neither read nor change the slice of another node that has the name."""
    taken = slice_of(server, OTHER, name=f"{MINE}-{DRIVER}-0")
    server.kubectl(["create", "-f", "-"], input_text=json.dumps(taken))
    path = tmp_path / "kubeconfig"
    path.write_text(server.render_kubeconfig(server.certificates.prepare_node(MINE)))
    path.chmod(0o600)
    slices = SliceKeeper(MINE, str(path), {}, lambda: True, Logger())
    try:
        slices.publish((DraDevice("gpu-0", "GPU-0", ("GPU-0",), (), {"type": {"string": "gpu"}}, {}),))
        wait_until(lambda: slices.is_settled, lambda: slices.problem)
    finally:
        slices.close()
    names = server.kubectl(["get", "resourceslices", "-o", "name", f"--field-selector=spec.nodeName={MINE}"]).split()
    assert len(names) == 1
    assert f"/{MINE}-{DRIVER}-0-" in names[0]
    clear(server)


def test_the_policy_holds_both_to_slices_and_pools_of_their_node(
    server: ControlPlane, kubelet: Writer, account: Writer
) -> None:
    server.kubectl(["apply", "-f", str(POLICY)])
    wrong = slice_of(server, MINE, pool=OTHER)
    wait_until(
        lambda: "may name a pool" in kubelet("create", wrong, "--dry-run=server")
    )  # seconds until it is in force
    for write in (kubelet, account):
        assert "may name a pool after that node alone" in write("create", wrong)
        assert "may name a pool after that node alone" in write("create", slice_of(server, MINE, pool=f"{MINE}-2"))
        assert write("create", slice_of(server, MINE)) == ""
        assert write("replace", slice_of(server, MINE)) == ""
        assert write("delete", slice_of(server, MINE)) == ""
        assert write("create", slice_of(server, MINE, pool=f"{MINE}/mig")) == ""
        clear(server)
    whole = slice_of(server, OTHER)
    server.kubectl(["create", "-f", "-"], input_text=json.dumps(whole))
    for verb in ("create", "replace", "delete"):
        document = slice_of(server, OTHER, name="another") if verb == "create" else whole
        assert "may write ResourceSlices of that node alone" in account(verb, document)
        assert kubelet(verb, document) != ""  # NodeRestriction is before it
    everywhere = slice_of(server, MINE, allNodes=True)
    del everywhere["spec"]["nodeName"]
    assert "of that node alone" in account("create", everywhere)
    assert "may name a pool" in account("create", slice_of(server, MINE, name="other", pool=OTHER, driver=OTHERS))
    assert account("create", slice_of(server, MINE, name="other", driver=OTHERS)) == ""
    assert "may name a pool" in account("create", slice_of(server, MINE, name="channel", pool=OTHER, driver=DOMAINS))
    # Other drivers, and who is on no node, are not its matter.
    assert account("create", slice_of(server, OTHER, name="nic", driver="dra.example.com")) == ""
    clear(server)


def test_it_is_about_the_drivers_of_the_daemon() -> None:
    policy, binding = yaml.safe_load_all(POLICY.read_text())
    assert f'["{DRIVER}", "{OTHERS}", "{DOMAINS}"]' in policy["spec"]["matchConditions"][0]["expression"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
