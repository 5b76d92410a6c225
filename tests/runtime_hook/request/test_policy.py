"""Rules of the node: who may have GPUs, and what may be forged of who somebody is."""

from __future__ import annotations

from typing import Any

import pytest

from runtime_hook.inputs.config import HookConfig, parse_config
from runtime_hook.inputs.origin import (
    NOBODY,
    Origin,
    find_mapped,
    find_origin,
    is_crio_cgroup,
    parse_owner,
    rootless_owner,
)
from runtime_hook.request.policy import apply_rules
from tests.runtime_hook.nodes import container

RULES: list[dict[str, Any]] = [
    {"decision": "deny", "users": [13]},
    {"decision": "allow", "namespaces": ["training", "research"]},
    {"decision": "allow", "namespaces": ["web"], "capabilities": ["utility"]},
    {"decision": "allow", "users": [1000], "acceptEnvvarUnprivileged": True, "acceptVolumeMounts": True},
    {"decision": "allow", "namespaces": ["mixed"], "users": [7]},
    {"decision": "deny", "namespaces": ["web", "last"]},
]


def applied(namespace: str = "", *, user: int = 0, owner: int | None = None, **settings: Any) -> HookConfig:
    config = parse_config({"acceptEnvvarUnprivileged": False, "rules": RULES, **settings}, "hook.json")
    return apply_rules(config, container(uid=user, engine_user=owner), Origin(namespace, "pod"))


@pytest.mark.parametrize(
    ("namespace", "who", "denial"),
    [
        pytest.param("training", {}, "", id="an allowed namespace"),
        pytest.param("mixed", {"user": 7}, "", id="an allowed user of an allowed namespace"),
        pytest.param("mixed", {}, "no rule allows GPUs for namespace mixed", id="a partial match does not count"),
        pytest.param("default", {}, "no rule allows GPUs for namespace default", id="a namespace that no rule names"),
        pytest.param("", {}, "no rule allows GPUs for user 0, outside any namespace", id="no namespace"),
        pytest.param("training", {"user": 13}, "rules[0] denies GPUs for namespace training", id="the first match"),
        pytest.param("web", {}, "", id="an earlier rule that allows"),
        pytest.param("last", {}, "rules[5] denies GPUs for namespace last", id="a denied namespace"),
        pytest.param("", {"user": 1000}, "", id="an allowed user"),
        pytest.param("", {"user": 0, "owner": 1000}, "", id="root of a rootless engine is its owner"),
        pytest.param("training", {"owner": 1001}, "no rule allows GPUs for user 1001", id="a rootless user's own word"),
        pytest.param("", {"user": 1000, "owner": 1001}, "no rule allows GPUs for user 1001", id="its users count not"),
    ],
)
def test_rules(namespace: str, who: dict[str, Any], denial: str) -> None:
    found = applied(namespace, **who)
    assert found.denial.startswith(denial) if denial else not found.denial


def test_without_rules_nobody_is_denied() -> None:
    assert applied(rules=[]).denial == ""


def test_a_rule_for_everybody_and_one_for_nobody() -> None:
    assert applied(rules=[{"decision": "allow"}]).denial == ""
    assert applied("a", rules=[{"decision": "deny"}, {"decision": "allow"}]).denial
    assert applied("a", rules=[{"decision": "allow", "namespaces": []}]).denial


def test_a_rule_narrows_capabilities_and_never_widens_them() -> None:
    node = ["compute", "utility", "video"]
    assert applied("web", supportedDriverCapabilities=node).supported_capabilities == ("utility",)
    assert applied("training", supportedDriverCapabilities=node).supported_capabilities == tuple(node)
    assert applied("web", supportedDriverCapabilities=["compute"]).supported_capabilities == ()


def test_a_rule_says_how_its_containers_may_ask() -> None:
    found = applied(user=1000)
    assert (found.accept_envvar_unprivileged, found.accept_volume_mounts) == (True, True)
    other = applied("training")
    assert (other.accept_envvar_unprivileged, other.accept_volume_mounts) == (False, False)


CONTAINERD = {"io.kubernetes.cri.sandbox-namespace": "web", "io.kubernetes.cri.sandbox-name": "p"}
CRIO = {"io.kubernetes.pod.namespace": "web", "io.kubernetes.pod.name": "p", "io.kubernetes.cri-o.Annotations": "{}"}
PODMAN = {"io.kubernetes.cri-o.TTY": "false", "io.kubernetes.pod.namespace": "web", "io.kubernetes.pod.name": "p"}


CRIO_GROUPS = ("kubepods-burstable-pod1.slice:crio:3f2a", "/kubepods/burstable/pod1/crio-3f2a")
CONTAINERD_GROUPS = ("kubepods-burstable-pod1.slice:cri-containerd:3f2a", "/kubepods/burstable/pod1/3f2a")
FORGED_CONTAINERD = {"io.kubernetes.cri.sandbox-namespace": "other", "io.kubernetes.cri.sandbox-name": "x"}
FORGED_CRIO = {
    "io.kubernetes.pod.namespace": "other",
    "io.kubernetes.pod.name": "x",
    "io.kubernetes.cri-o.Annotations": "{}",
}


@pytest.mark.parametrize(
    ("annotations", "cgroups", "origin"),
    [
        pytest.param({}, ("", *CRIO_GROUPS, *CONTAINERD_GROUPS), Origin(), id="nothing"),
        pytest.param(CONTAINERD, ("", *CONTAINERD_GROUPS), Origin("web", "p"), id="containerd"),
        pytest.param(CRIO, ("", *CRIO_GROUPS), Origin("web", "p"), id="CRI-O"),
        pytest.param(
            CRIO | FORGED_CONTAINERD,
            CRIO_GROUPS,
            Origin("web", "p"),
            id="a pod under CRI-O that writes containerd's keys",
        ),
        pytest.param(
            CONTAINERD | FORGED_CRIO,
            CONTAINERD_GROUPS,
            Origin("web", "p"),
            id="a pod under containerd whose handler passes on CRI-O's keys",
        ),
        pytest.param(CRIO | FORGED_CONTAINERD, ("",), Origin(), id="both engines' keys, and no cgroup that tells"),
        pytest.param(FORGED_CONTAINERD, CRIO_GROUPS, Origin(), id="containerd's keys alone, and CRI-O's cgroup"),
        pytest.param(
            CONTAINERD | {"io.kubernetes.pod.namespace": "x"}, ("",), Origin("web", "p"), id="CRI-O's key elsewhere"
        ),
        pytest.param(PODMAN, ("", "machine.slice:libpod:3f2a"), Origin(), id="a container of Podman with those keys"),
        pytest.param({"io.kubernetes.pod.namespace": "web"}, ("", "/a"), Origin(), id="a label that anybody can write"),
    ],
)
def test_origin(annotations: dict[str, str], cgroups: tuple[str, ...], origin: Origin) -> None:
    assert {find_origin(annotations, cgroup) for cgroup in cgroups} == {origin}


@pytest.mark.parametrize("path", ["", "/", "crio", "/crio/3f2a", "a:cri-containerd:crio-3f2a", "/crio-x/3f2a", "::"])
def test_a_cgroup_of_another_engine_is_not_taken_for_crios(path: str) -> None:
    assert not is_crio_cgroup(path)


@pytest.mark.parametrize(
    ("uid_map", "owner"),
    [
        pytest.param("         0          0 4294967295\n", None, id="the host's own namespace"),
        pytest.param("0 1000 1\n1 100000 65536\n", 1000, id="a rootless engine"),
        pytest.param("1 100000 65536\n0 1000 1\n", 1000, id="in another order"),
        pytest.param("", None, id="no map"),
        pytest.param("5 1000 1\n", None, id="a namespace without root"),
        pytest.param("zero one\n0 x 1\n", None, id="noise"),
    ],
)
def test_owner_of_a_user_namespace(uid_map: str, owner: int | None) -> None:
    assert parse_owner(uid_map) == owner


def test_the_owner_of_this_process_can_be_read() -> None:
    owner = rootless_owner()
    assert owner is None or owner > 0


def test_who_runs_a_rootless_runc_is_its_hooks_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its hooks are in the host's namespace, whose map told of no user: rules believed what the user wrote."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert rootless_owner() == 1000


@pytest.mark.parametrize(
    ("uid_map", "user", "found"),
    [
        pytest.param("         0     100000      65536\n", 0, 100000, id="root"),
        pytest.param("0 1000 1\n1 100000 65536\n", 5, 100004, id="the second of two ranges"),
        pytest.param("1 100000 65536\n", 0, NOBODY, id="a map that leaves out root"),
        pytest.param("0 100000 65536\n", 65536, NOBODY, id="behind the last"),
        pytest.param("0 0 4294967295\n", 7, 7, id="the host's own namespace"),
        pytest.param("0 x 9\n-1 5 9\n\n", 0, NOBODY, id="noise"),
    ],
)
def test_whom_a_namespace_makes_of_a_user(uid_map: str, user: int, found: int) -> None:
    assert find_mapped(uid_map, user) == found


@pytest.mark.parametrize(
    ("uid", "mappings", "user"),
    [
        pytest.param(5, [], 5, id="no user namespace"),
        pytest.param(5, [{"containerID": 0, "hostID": 100000, "size": 65536}], 100005, id="a user namespace"),
        pytest.param(
            5,
            [{"containerID": 0, "hostID": 1000, "size": 1}, {"containerID": 1, "hostID": 100000, "size": 9}],
            100004,
            id="the second of two ranges",
        ),
        pytest.param(70000, [{"containerID": 0, "hostID": 100000, "size": 65536}], 70000, id="nobody's"),
    ],
)
def test_the_user_is_the_hosts(uid: int, mappings: list[dict[str, int]], user: int) -> None:
    assert container(uid=uid, linux={"uidMappings": mappings}).user == user


@pytest.mark.parametrize(
    ("mount", "requests"),
    [
        pytest.param({"destination": "/var/run/nvidia-container-devices/0"}, ("0",), id="NVIDIA's folder"),
        pytest.param({"destination": "//var/run/./nvidia-container-devices//imex/3/"}, ("imex/3",), id="cleaned up"),
        pytest.param({"destination": "/var/run/nvidia-container-devices/x/../0"}, ("0",), id="dots"),
        pytest.param({"destination": "/var/run/nvidia-container-devices/../0"}, (), id="dots that lead out"),
        pytest.param({"destination": "/var/run/nvidia-container-devicesX/0"}, (), id="a folder of a like name"),
        pytest.param({"destination": "/var/run/nvidia-container-devices"}, (), id="the folder itself"),
        pytest.param({"destination": "/mnt/var/run/nvidia-container-devices/0"}, (), id="a folder of a longer name"),
        pytest.param({"destination": "/var/run/nvidia-container-devices/0", "source": "/dev/zero"}, (), id="no null"),
        pytest.param({"destination": "/var/run/nvidia-container-devices/0", "source": None}, (), id="no source"),
        pytest.param({"destination": "/var/run/nvidia-container-devices/0", "source": "/dev//null"}, ("0",), id="null"),
        pytest.param({"destination": 3}, (), id="no path"),
    ],
)
def test_mounts_that_ask(mount: dict[str, Any], requests: tuple[str, ...]) -> None:
    assert container(mounts=[{"source": "/dev/null", **mount}, "noise"]).mount_requests == requests
