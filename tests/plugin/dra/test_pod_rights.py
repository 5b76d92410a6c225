"""What the token of the daemon's pod may do for claims on a real API server: for its node alone, by policy."""

from __future__ import annotations

import functools
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.kubelet.claims import create_allocated, published
from plugin.base.log import Logger
from plugin.dra.devices import DraDevice
from plugin.dra.keeper import SliceKeeper
from plugin.dra.slices import Owner, foreign_writes, plan_writes
from plugin.publication.node_object.api import credentials
from plugin.settings.node_config import IN_CLUSTER
from tests.plugin.daemon_process import REPOSITORY
from tests.plugin.node_object.pod_account import NAMESPACE, Account, account_on, with_token
from tests.plugin.node_object.real_cluster import register
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.cluster import ControlPlane

pytestmark = pytest.mark.functional  # etcd and an API server

FILES = [REPOSITORY / f"deploy/rbac/{name}.yaml" for name in ("node", "node-claims")]
MANIFEST = REPOSITORY / "deploy/daemonset/grapnel-node.yaml"
MINE, OTHER = "serves-claims", "serves-others"
SLICES, CLAIMS = "/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
DEVICE = DraDevice("gpu-0", "GPU-0", ("GPU-0",), (), {"type": {"string": "gpu"}}, {})


def as_list(*documents: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


def is_policy(document: dict[str, Any]) -> bool:
    return document["kind"] in POLICIES


@pytest.fixture(scope="module")
def rights(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with two Nodes, and with all that `kubectl apply` makes but the DaemonSet and the policies."""
    documents = [each for path in (MANIFEST, *FILES) for each in yaml.safe_load_all(path.read_text())]
    granted = as_list(*(each for each in documents if each["kind"] != "DaemonSet" and not is_policy(each)))
    for name in (MINE, OTHER):
        register(control_plane, name)
    control_plane.kubectl(["apply", "-f", "-"], input_text=granted)
    yield control_plane
    control_plane.kubectl(["delete", "resourceslices", "--all"])
    control_plane.kubectl(["delete", "pod", f"on-{MINE}", "--namespace", NAMESPACE, "--force", "--grace-period=0"])
    control_plane.kubectl(["delete", "--wait=false", "-f", "-"], input_text=granted)
    control_plane.kubectl(["delete", "node", MINE, OTHER])


@pytest.fixture(scope="module")
def daemon(rights: ControlPlane) -> Account:
    """The token of a pod on the node."""
    return Account(rights, MINE, account_on(rights, MINE))


@pytest.fixture
def policy(rights: ControlPlane, daemon: Account) -> Iterator[None]:
    """The policy that is beside the role, in force."""
    documents = as_list(*filter(is_policy, yaml.safe_load_all(FILES[1].read_text())))
    rights.kubectl(["apply", "-f", "-"], input_text=documents)
    wait_until(lambda: daemon.ask("POST", f"{SLICES}?dryRun=All", slice_of(rights, OTHER)) != "")  # takes seconds
    yield
    rights.kubectl(["delete", "resourceslices", "--all"])
    rights.kubectl(["delete", "-f", "-"], input_text=documents)
    wait_until(lambda: daemon.ask("POST", f"{SLICES}?dryRun=All", slice_of(rights, OTHER)) == "")


def slice_of(control_plane: ControlPlane, node: str, **spec: Any) -> dict[str, Any]:
    """Return a slice as the daemon writes it, or with something else in it."""
    uid = control_plane.kubectl(["get", "node", node, "-o", "jsonpath={.metadata.uid}"])
    (write,) = plan_writes(Owner(node, uid), [DEVICE], [])
    assert write.document is not None
    made = write.document
    made["metadata"]["name"] = f"{node}-by-test"
    made["spec"] |= spec
    return made


def pool(name: str) -> dict[str, object]:
    return {"name": name, "generation": 1, "resourceSliceCount": 1}


@pytest.fixture
def keeper(
    rights: ControlPlane, daemon: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SliceKeeper]:
    """What keeps the node's slices in a pod, with the pod's token."""
    (tmp_path / "ca.crt").write_bytes(rights.certificates.certificate("ca").read_bytes())
    (tmp_path / "token").write_text(json.loads(daemon.kubeconfig)["users"][0]["user"]["token"])
    mounted = functools.partial(credentials.Credentials, service_account=tmp_path)
    monkeypatch.setattr(credentials, "Credentials", mounted)
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(rights.port)}
    made = SliceKeeper(MINE, IN_CLUSTER, environment, lambda: True, Logger())
    yield made
    made.close()


def test_without_the_policy_nothing_is_published_and_as_soon_as_it_is_there_it_is(
    rights: ControlPlane, daemon: Account, keeper: SliceKeeper, request: pytest.FixtureRequest
) -> None:
    tried = [daemon.ask("POST", each.path, json.loads(each.body or b"")) for _, each in foreign_writes(MINE)]
    assert tried == ["", ""], "what is tried is refused for no fault of its own"
    keeper.publish((DEVICE,))
    wait_until(lambda: "slices of other nodes" in keeper.problem, lambda: keeper.problem)
    assert not published(rights, MINE)
    request.getfixturevalue("policy")
    wait_until(lambda: keeper.is_settled, lambda: keeper.problem)
    (written,) = published(rights, MINE)
    assert (written["spec"]["nodeName"], written["spec"]["pool"]["name"]) == (MINE, MINE)


@pytest.mark.usefixtures("policy")
def test_it_keeps_the_slices_of_its_node_and_takes_them_back(rights: ControlPlane, keeper: SliceKeeper) -> None:
    keeper.publish((DEVICE,))
    wait_until(lambda: keeper.is_settled, lambda: keeper.problem)
    keeper.publish((DEVICE, DEVICE._replace(name="gpu-1", uuid="GPU-1", parts=("GPU-1",))))
    wait_until(lambda: keeper.is_settled, lambda: keeper.problem)
    (name,) = (each["metadata"]["name"] for each in published(rights, MINE))
    rights.kubectl(["delete", "resourceslice", name])
    wait_until(lambda: bool(published(rights, MINE)), lambda: keeper.problem)  # it watches
    keeper.publish(())
    wait_until(lambda: keeper.is_settled and not published(rights, MINE), lambda: keeper.problem)


@pytest.mark.usefixtures("policy")
@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "dra.example.com"])
def test_a_slice_of_another_node_is_nobodys_to_write(rights: ControlPlane, daemon: Account, driver: str) -> None:
    """Whichever driver's: the role covers them all."""
    theirs = slice_of(rights, OTHER, driver=driver)
    path = f"{SLICES}/{theirs['metadata']['name']}"
    assert "of no other" in daemon.ask("POST", SLICES, theirs)
    rights.kubectl(["create", "-f", "-"], input_text=json.dumps(theirs))
    for method in ("PUT", "DELETE"):
        assert "of no other" in daemon.ask(method, path, {} if method == "DELETE" else theirs)
    everywhere = slice_of(rights, MINE, driver=driver, allNodes=True)
    del everywhere["spec"]["nodeName"]
    assert "of no other" in daemon.ask("POST", SLICES, everywhere)
    for name in (OTHER, f"{MINE}-2"):
        assert "after no other" in daemon.ask("POST", SLICES, slice_of(rights, MINE, driver=driver, pool=pool(name)))
    assert daemon.ask("POST", f"{SLICES}?dryRun=All", slice_of(rights, MINE, driver=driver)) == ""


@pytest.mark.usefixtures("policy")
def test_a_token_that_names_no_node_writes_no_slice(rights: ControlPlane) -> None:
    unbound = Account(rights, MINE, with_token(rights))
    for node in (MINE, OTHER):
        assert "of no other" in unbound.ask("POST", SLICES, slice_of(rights, node))


@pytest.mark.usefixtures("policy")
def test_it_reads_a_claim_by_its_name_and_lists_and_changes_none(rights: ControlPlane, daemon: Account) -> None:
    create_allocated(rights, MINE, "read-by-a-pod", ["gpu-0"])
    path = f"{CLAIMS}/read-by-a-pod"
    assert daemon.ask("GET", path) == ""
    assert "cannot list" in daemon.ask("GET", CLAIMS)
    assert "cannot patch" in daemon.ask("PATCH", path, {}, "application/merge-patch+json")
    assert "cannot patch" in daemon.ask("PATCH", f"{path}/status", {}, "application/merge-patch+json")
    assert "cannot delete" in daemon.ask("DELETE", path)
    assert "cannot deletecollection" in daemon.ask("DELETE", SLICES)
    rights.kubectl(["delete", "pods,resourceclaims", "--all", "--force", "--wait=false"])


@pytest.mark.usefixtures("policy")
def test_the_api_server_finds_no_fault_with_the_policy(rights: ControlPlane) -> None:
    def status() -> dict[str, Any]:
        found = rights.kubectl(["get", "validatingadmissionpolicy", "grapnel-node-claims", "-o", "json"])
        seen: dict[str, Any] = json.loads(found).get("status", {})
        return seen

    wait_until(lambda: "observedGeneration" in status())
    assert not status().get("typeChecking", {}).get("expressionWarnings")
