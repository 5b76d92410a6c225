"""The DaemonSet in deploy/daemonset: it mounts what the daemon uses, and nothing that it does not."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from plugin.cli.grammar.parser import build_parser
from plugin.settings.node_config import DEFAULT_PATH, NodeConfig
from plugin.settings.nvidia.table import SETTINGS
from plugin.system.sole import lock_path, own_name

REPOSITORY = Path(__file__).parents[3]
FILE = REPOSITORY / "deploy/daemonset/grapnel-node.yaml"
PAGE = REPOSITORY / "docs/device-plugin/daemonset.md"
DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all(FILE.read_text()))
CONFIG = NodeConfig()


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = (each for each in DOCUMENTS if each["kind"] == kind)
    return found


POD: dict[str, Any] = of_kind("DaemonSet")["spec"]["template"]["spec"]
(DAEMON,) = POD["containers"]
PROBE: list[str] = DAEMON["readinessProbe"]["exec"]["command"]
(SETTINGS_STEP,) = POD["initContainers"]


def test_the_daemon_is_started_as_a_pod() -> None:
    words = DAEMON["command"]
    program = words.index("grapnel-node")
    arguments = build_parser("run").parse_args(words[program + 1 :])
    assert (arguments.verb, arguments.in_pod) == ("run", True)


def test_it_drops_all_capabilities_but_one_for_good() -> None:
    assert DAEMON["command"][:5] == [
        "setpriv",
        "--bounding-set=-all,+sys_admin",
        "--inh-caps=-all",
        "--no-new-privs",
        "--",
    ]
    assert DAEMON["securityContext"] == {
        "privileged": True,
        "readOnlyRootFilesystem": True,
        "runAsUser": 0,  # the image's own user is another one
        "runAsGroup": 0,
    }


def test_every_folder_of_the_daemon_is_the_hosts() -> None:
    paths = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in POD["volumes"]}
    mounted = {mount["mountPath"]: paths[mount["name"]] for mount in DAEMON["volumeMounts"]}
    kubelet = CONFIG.kubelet_root
    same = [
        *(CONFIG.dev_root, CONFIG.sys_root, CONFIG.admin_socket.parent, CONFIG.state_folder, DEFAULT_PATH.parent),
        *(kubelet / name for name in ("device-plugins", "plugins_registry", "pod-resources")),
        *(CONFIG.cdi_folder, CONFIG.state_folder.parent / "drift", Path("/var/log/pods"), Path("/var/log/containers")),
    ]
    assert mounted == {str(path): str(path) for path in same} | {"/host/usr": "/usr", "/tmp": None}


def test_it_writes_to_no_folder_of_the_host_but_these() -> None:
    writable = {mount["mountPath"] for mount in DAEMON["volumeMounts"] if not mount.get("readOnly")}
    kubelet = {f"{CONFIG.kubelet_root}/{name}" for name in ("device-plugins", "plugins_registry", "pod-resources")}
    own = {str(CONFIG.admin_socket.parent), str(CONFIG.state_folder), str(CONFIG.cdi_folder)}
    assert writable == {*own, *kubelet, "/tmp"}


def test_the_driver_is_found_below_the_mounted_folder() -> None:
    (setting,) = (each for each in SETTINGS if each.name == "flags.plugin.containerDriverRoot")
    environment = {each["name"]: each.get("value") for each in DAEMON["env"]}
    assert [environment[name] for name in setting.variables if name in environment] == ["/host"]
    assert SETTINGS_STEP["env"] == DAEMON["env"]


@pytest.mark.parametrize(
    ("holder", "is_ready"),
    [
        (own_name({"POD_NAMESPACE": "gpus", "POD_NAME": "a"}, is_pod=True), True),
        (own_name({"POD_NAMESPACE": "gpus", "POD_NAME": "the-one-before"}, is_pod=True), True),
        (own_name({"POD_NAMESPACE": "elsewhere", "POD_NAME": "a"}, is_pod=True), False),
        (own_name({"NOTIFY_SOCKET": "x"}, is_pod=False), False),
    ],
)
def test_it_is_ready_when_it_has_the_node_or_waits_for_the_pod_before(
    tmp_path: Path, holder: str, *, is_ready: bool
) -> None:
    (tmp_path / "node.lock").write_text(holder)
    command = [word.replace(str(lock_path(CONFIG.admin_socket)), f"{tmp_path}/node.lock") for word in PROBE]
    assert command != PROBE
    done = subprocess.run(command, check=False, env={"POD_NAMESPACE": "gpus", "POD_NAME": "a", "PATH": "/usr/bin:/bin"})
    assert (done.returncode == 0) is is_ready


def test_the_next_pod_is_there_before_the_one_before_ends() -> None:
    strategy = of_kind("DaemonSet")["spec"]["updateStrategy"]["rollingUpdate"]
    assert (strategy["maxSurge"], strategy["maxUnavailable"]) == ("10%", 0)
    assert not POD.get("hostNetwork"), "two of them could not have one port"


def test_one_that_ends_as_soon_as_it_begins_ends_none_before_it_for_as_long_as_the_page_says() -> None:
    """The page still told of the time before which a pod that ended counted as one that had never been ready."""
    daemons = of_kind("DaemonSet")["spec"]
    assert "minReadySeconds" not in daemons, "Kubernetes forgets the second of two that become ready within it"
    (told,) = re.findall(r"it ends\s+within (\w+) seconds, the one before goes on", PAGE.read_text())
    assert DAEMON["readinessProbe"]["initialDelaySeconds"] == {"five": 5, "ten": 10}[told]


def test_it_stays_on_a_node_that_is_drained() -> None:
    assert POD["tolerations"] == [{"operator": "Exists"}]
    assert POD["priorityClassName"] == "system-node-critical"
    assert "grapnel.dev/node-daemon" in of_kind("DaemonSet")["spec"]["template"]["metadata"]["labels"]


def labels_of(policy: dict[str, Any]) -> str:
    """Return which labels a policy says are the daemon's."""
    (found,) = (
        each["expression"].partition("key in ['grapnel.dev/driver")[2].rstrip(")")
        for each in policy["spec"]["validations"]
        if "nvidia[.]com" in each["expression"]
    )
    return str(found)


def test_an_object_of_feature_discovery_may_have_the_same_labels_as_the_node() -> None:
    documents = yaml.safe_load_all((REPOSITORY / "deploy/rbac/node-feature.yaml").read_text())
    (other,) = (each for each in documents if each["kind"] == "ValidatingAdmissionPolicy")
    (own,) = (
        each for each in DOCUMENTS if each["kind"] == other["kind"] and each["metadata"]["name"] == "grapnel-node"
    )
    assert labels_of(other) == labels_of(own)
    assert labels_of(own).startswith(".kernel-module'")


def test_the_policies_are_about_the_account_and_in_force() -> None:
    """What they let it do is asked of a real API server."""
    account = of_kind("ServiceAccount")["metadata"]
    policies = [each for each in DOCUMENTS if each["kind"] == "ValidatingAdmissionPolicy"]
    for policy in policies:
        (condition,) = policy["spec"]["matchConditions"]
        assert f'"system:serviceaccount:{account["namespace"]}:{account["name"]}"' in condition["expression"]
    bindings = [each["spec"] for each in DOCUMENTS if each["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert [each["policyName"] for each in bindings] == [each["metadata"]["name"] for each in policies]
    assert all(each["validationActions"] == ["Deny"] for each in bindings)
    role = yaml.safe_load((REPOSITORY / "deploy/rbac/node.yaml").read_text())
    assert of_kind("ClusterRoleBinding")["roleRef"]["name"] == role["metadata"]["name"]
