"""What grapnel needs to be allowed: the file that grants it, and a real API server that checks every request."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from provision.cli import main
from provision.cluster import open_api
from provision.cluster.errors import ForbiddenError, KubeconfigError
from provision.cluster.kubernetes.permissions import (
    ASKING,
    GRANT,
    HELPFUL,
    LEASE_NAME,
    LEASE_NAMESPACE,
    NEEDED,
    ON_CALL_GRANT,
    REMOVING,
    REPLACE_GRANT,
    REPLACING,
    REQUESTING,
    REQUESTING_GRANT,
    TAINTING,
    TAINTING_GRANT,
    VIEW_GRANT,
    VIEWING,
    Permission,
)
from provision.cluster.reader import KubernetesReader
from provision.cluster.requests import LeasePauses
from provision.declaration.spec.values.label_selector import parse_selector
from provision.rollout.errors import ConflictError
from provision.rollout.interface.cluster import EvictionOutcome
from provision.rollout.interface.pause import Pause
from provision.rollout.model import NodeView, Phase
from tests.provision.cluster.expired import expired_certificate
from tests.provision.cluster.samples import RECORD
from tests.provision.cluster.stage import GPU_RULES, wait_until
from tests.provision.cluster.test_progress import STANDING

if TYPE_CHECKING:
    from provision.cluster.kubernetes.cluster import KubernetesCluster
    from provision.rollout.status.model import Seen
    from tests.provision.cluster.stage import Stage

REPLACED = list(yaml.safe_load_all((Path(__file__).parents[3] / REPLACE_GRANT).read_text()))
GRANTED = list(yaml.safe_load_all((Path(__file__).parents[3] / GRANT).read_text()))
VIEWED = list(yaml.safe_load_all((Path(__file__).parents[3] / VIEW_GRANT).read_text()))
ON_CALL = list(yaml.safe_load_all((Path(__file__).parents[3] / ON_CALL_GRANT).read_text()))
TAINTED = yaml.safe_load((Path(__file__).parents[3] / TAINTING_GRANT).read_text())
REQUESTED = yaml.safe_load((Path(__file__).parents[3] / REQUESTING_GRANT).read_text())
WHERE = {"ClusterRole": "", "Role": LEASE_NAMESPACE}


def permissions(role: dict[str, Any]) -> set[Permission]:
    """Return what a role grants."""
    return {
        Permission(verb=verb, resource=resource, group=group, namespace=WHERE[role["kind"]], name=name)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        for name in rule.get("resourceNames", [""])
    }


def test_the_file_grants_what_is_needed_and_nothing_else() -> None:
    assert set.union(*map(permissions, GRANTED)) == set(NEEDED) | set(HELPFUL) | set(REMOVING) | set(ASKING)
    assert [role["kind"] for role in GRANTED] == list(WHERE)


def test_the_file_for_those_on_call_grants_what_they_need_and_nothing_else() -> None:
    assert set.union(*map(permissions, ON_CALL)) == set(ASKING)


def test_the_file_for_those_who_look_grants_what_is_needed_and_nothing_else() -> None:
    assert set.union(*map(permissions, VIEWED)) == set(VIEWING)


def test_the_file_for_requests_of_maintenance_grants_what_they_need_and_nothing_else() -> None:
    granted = {replace(each, namespace=REQUESTED["metadata"]["namespace"]) for each in permissions(REQUESTED)}
    assert granted == set(REQUESTING)


def test_the_file_for_replacements_grants_what_they_need_and_nothing_else() -> None:
    assert set.union(*map(permissions, REPLACED)) == set(REPLACING)


def test_the_file_for_taints_of_devices_grants_what_they_need_and_nothing_else() -> None:
    assert permissions(TAINTED) == set(TAINTING)


@pytest.mark.parametrize("permission", NEEDED, ids=str)
def test_the_rule_that_a_hint_shows_is_yaml_of_a_role(permission: Permission) -> None:
    rule = yaml.safe_load(permission.rule)

    role = {"kind": "Role" if permission.namespace else "ClusterRole", "rules": [rule]}
    assert permissions(role) == {permission}


def operator(
    stage: Stage, name: str, *, without: Permission | None = None, granted: list[dict[str, Any]] = GRANTED
) -> Path:
    """Make a service account that may do what the file grants; return its kubeconfig."""
    subject = {"kind": "ServiceAccount", "namespace": "default", "name": name}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": "default"}}
    objects: list[dict[str, Any]] = [account]
    for role in granted:
        rules = [rule for rule in (cut(rule, without) for rule in role["rules"]) if rule["verbs"]]
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": role["kind"], "name": name}
        common = {"apiVersion": role["apiVersion"], "metadata": {**role["metadata"], "name": name}}
        objects.append(common | {"kind": role["kind"], "rules": rules})
        objects.append(common | {"kind": f"{role['kind']}Binding", "roleRef": reference, "subjects": [subject]})
    stage.kubectl("create", "-f", "-", data={"apiVersion": "v1", "kind": "List", "items": objects})
    return user(stage, name, stage.kubectl("create", "token", name).strip())


def user(stage: Stage, name: str, token: str) -> Path:
    """Return a kubeconfig with that token."""
    config = json.loads(stage.control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    path = stage.control_plane.folder / f"{name}.kubeconfig"
    path.write_text(json.dumps(config))
    return path


def cut(rule: dict[str, Any], without: Permission | None) -> dict[str, Any]:
    if without is None or (rule["resources"], rule["apiGroups"]) != ([without.resource], [without.group]):
        return rule
    return {**rule, "verbs": [verb for verb in rule["verbs"] if verb != without.verb]}


def upgrade_one(stage: Stage, cluster: KubernetesCluster) -> None:
    """Do everything that the adapter can do."""
    node, others = stage.make_node(), [stage.make_node() for _ in range(5)]
    pod = stage.make_pod(node)
    with cluster.lease("ada@laptop"):
        cluster.ensure_runtime_class(f"class-{node}", "nvidia")
        cluster.observe([node, *others])
        cluster.write(node, RECORD, cordoned=True)
        seen = cluster.observe([node])[node]
        assert isinstance(seen, NodeView)
        assert [each.name for each in seen.gpu_pods] == [pod]
        assert cluster.evict(seen.gpu_pods[0]).outcome is EvictionOutcome.EVICTED
        cluster.write(node, None, cordoned=False)
    with cluster.lease("ada@laptop"):  # it exists now
        pass


@pytest.mark.functional
def test_a_service_account_with_that_role_can_do_all_of_it(stage: Stage) -> None:
    upgrade_one(stage, stage.connect(operator(stage, "operator")))


@pytest.mark.functional
@pytest.mark.parametrize("missing", NEEDED, ids=str)
def test_without_one_of_them_nothing_is_begun_and_it_is_named(stage: Stage, missing: Permission) -> None:
    name = f"without-{NEEDED.index(missing)}"
    cluster = stage.connect(operator(stage, name, without=missing))

    with pytest.raises(ForbiddenError) as raised, cluster.lease("ada@laptop"):
        pytest.fail("it begins all the same")

    assert raised.value.message == f"these credentials may not {missing} on {cluster.name}"
    assert raised.value.hint.endswith(f"missing rules:\n  - {missing.rule}")


@pytest.mark.functional
def test_who_may_not_patch_deployments_begins_nothing_where_pods_are_to_be_replaced_first(stage: Stage) -> None:
    rules = replace(GPU_RULES, first=parse_selector("app=web"), first_namespaces=frozenset({"default"}))
    cluster = stage.connect(operator(stage, "no-replacer"), rules=rules)

    with pytest.raises(ForbiddenError) as raised, cluster.lease("ada@laptop"):
        pytest.fail("it begins all the same")

    wanted = "get replicasets in namespace default, get deployments in namespace default, patch deployments in"
    assert raised.value.message == f"these credentials may not {wanted} namespace default on {cluster.name}"
    hint = "deploy/rbac/replace-first.yaml grants what rollout.drain.replaceFirst needs; missing rules:"
    assert raised.value.hint.startswith(hint)

    stage.kubectl("apply", "-f", "-", data=REPLACED[0])
    role, account = REPLACED[0]["metadata"]["name"], "default:no-replacer"
    stage.kubectl("create", "rolebinding", "replacer", f"--clusterrole={role}", f"--serviceaccount={account}")

    def is_let_in() -> bool:  # the API server's authorizer learns of it after a moment
        try:
            with cluster.lease("ada@laptop"):
                return True
        except ForbiddenError:
            return False

    wait_until(is_let_in, "a binding in that namespace is enough")


@pytest.mark.functional
def test_a_permission_that_is_taken_away_meanwhile_is_named(stage: Stage) -> None:
    cluster = stage.connect(operator(stage, "demoted"))
    node = stage.make_node()
    cluster.observe([node])
    stage.kubectl("delete", "clusterrolebinding", "demoted")

    refusals: list[ForbiddenError] = []

    def is_refused() -> bool:  # the API server's authorizer learns of it after a moment
        try:
            cluster.write(node, None)
        except ForbiddenError as error:
            refusals.append(error)
        return bool(refusals)

    wait_until(is_refused, "the write is refused")

    assert refusals[0].message == f"system:serviceaccount:default:demoted may not patch nodes on {cluster.name}"
    assert '{apiGroups: [""], resources: ["nodes"], verbs: ["patch"]}' in refusals[0].hint


@pytest.mark.functional
def test_a_token_that_is_none_is_not_accepted(stage: Stage) -> None:
    path = user(stage, "stranger", "not-to-be-seen")

    with pytest.raises(KubeconfigError, match=r"cluster .* does not accept the credentials") as raised:
        stage.connect(path)

    assert "not-to-be-seen" not in raised.value.message + raised.value.hint


@pytest.mark.functional
def test_a_certificate_that_has_expired_is_not_accepted(stage: Stage, tmp_path: Path) -> None:
    ca = stage.control_plane.certificates
    certificate, key = expired_certificate(tmp_path, "/O=system:masters/CN=ada", (ca.certificate("ca"), ca.key("ca")))
    config = json.loads(stage.control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"client-certificate": str(certificate), "client-key": str(key)}
    path = tmp_path / "expired.kubeconfig"
    path.write_text(json.dumps(config))

    with pytest.raises(KubeconfigError, match=r"cluster .* does not accept the credentials"):
        stage.connect(path)


@pytest.mark.functional
def test_a_server_with_another_certificate_is_not_believed(stage: Stage) -> None:
    config = json.loads(stage.control_plane.kubeconfig.read_text())
    del config["clusters"][0]["cluster"]["certificate-authority-data"]
    path = stage.control_plane.folder / "untrusting.kubeconfig"
    path.write_text(json.dumps(config))

    with pytest.raises(Exception, match=r"does not answer: its certificate is not trusted: "):
        stage.connect(path)


@pytest.mark.functional
def test_the_lease_is_where_people_look_for_it(stage: Stage) -> None:
    with stage.connect().lease("ada@laptop"):
        lease = stage.get("lease", LEASE_NAME, "--namespace", LEASE_NAMESPACE)

    assert lease["spec"]["holderIdentity"] == "ada@laptop"
    assert lease["spec"]["leaseDurationSeconds"] == 45
    assert lease["metadata"]["labels"] == {"app.kubernetes.io/managed-by": "grapnel"}


@pytest.mark.functional
def test_who_may_look_sees_a_rollout_as_it_goes_on_and_can_change_nothing(stage: Stage) -> None:
    node, waiting = stage.make_node(), stage.make_node()
    account = operator(stage, "viewer", granted=VIEWED)
    api = open_api(account, None, {})
    assert api is not None
    reader = KubernetesReader(api, None, {})
    cluster = stage.connect()
    with cluster.lease("ada@laptop/1"):
        cluster.observe([node, waiting])
        cluster.write(node, RECORD, cordoned=True)
        first = reader.look()
        cluster.publish(replace(STANDING, out=frozenset({node}), waiting={waiting: f"waits for {node}: drain"}))
        cluster.write(node, replace(RECORD, phase=Phase.RELEASE), cordoned=True)
        second = reader.follow(2)
    third = reader.follow(2)

    assert first.tenant is not None
    assert (first.tenant.holder, first.tenant.is_at_work, first.complaints) == ("ada@laptop/1", True, ())
    assert phase_of(first, node) is Phase.DRAIN
    assert phase_of(second, node) is Phase.RELEASE
    assert third.tenant is None
    assert third.standing is not None, "what was published last stays with the lease"
    assert third.standing.waiting == {waiting: f"waits for {node}: drain"}
    with pytest.raises(ForbiddenError), stage.connect(account).lease("eve"):
        pytest.fail("it changes something")


@pytest.mark.functional
def test_who_is_on_call_pauses_a_rollout_of_somebody_else_and_cannot_upgrade(stage: Stage) -> None:
    account = operator(stage, "on-call-tonight", granted=ON_CALL)
    api = open_api(account, None, {})
    assert api is not None
    pauses, cluster = LeasePauses(api), stage.connect()
    stage.kubectl("delete", "lease", LEASE_NAME, "--namespace", LEASE_NAMESPACE, "--ignore-not-found")

    pause, _before = pauses.pause("eve@phone", "before there was any upgrade")
    with cluster.lease("ada@laptop"):
        assert cluster.paused() == pause
    assert stage.connect().paused() == pause
    assert pauses.resume() == pause
    assert stage.connect().paused() is None
    with (
        pytest.raises(ForbiddenError),
        stage.connect(account).lease("eve"),
    ):
        pytest.fail("it may upgrade")


@pytest.mark.functional
def test_who_is_on_call_takes_a_node_out_of_an_upgrade_by_name(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node, cluster = stage.make_node(rack="b7"), stage.connect()
    cluster.observe([node])
    cluster.write(node, replace(RECORD, phase=Phase.FAILED, failed_in=Phase.DRAIN), cordoned=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    where = ["--kubeconfig", str(operator(stage, "on-call-by-name", granted=ON_CALL))]

    with cluster.lease("ada@laptop/1"):
        assert main(["retry", node, *where]) == 0
        seen = cluster.observe([node])[node]
        assert isinstance(seen, NodeView)
        assert seen.record is not None
        assert seen.record.retry
        assert main(["abandon", node, *where]) == 0
        with pytest.raises(ConflictError):
            cluster.write(node, RECORD, cordoned=False)
    assert main(["skip", "--undo", node, *where]) == 0
    assert main(["skip", f"{node}x", *where]) == 2

    stored = stage.get("node", node)
    assert stored["metadata"]["labels"] == {"rack": "b7"}
    assert stored["spec"]["unschedulable"]
    captured = capsys.readouterr()
    assert f"{node}: is tried again by ada@laptop/1" in captured.out
    assert f"did you mean {node}?" in captured.err


@pytest.mark.functional
@pytest.mark.usefixtures("often_renewed")
def test_a_running_engine_hears_of_a_pause_by_kubectl_and_keeps_it(stage: Stage) -> None:
    cluster = stage.connect()
    lease = ("lease", LEASE_NAME, "--namespace", LEASE_NAMESPACE)
    with cluster.lease("ada@laptop"):
        stage.kubectl("annotate", *lease, "grapnel.dev/pause=disk alarms", "--overwrite")
        wait_until(lambda: cluster.paused() == Pause(by="somebody", reason="disk alarms"), "the engine hears of it")
        cluster.publish(STANDING)
        wait_until(lambda: "grapnel.dev/progress" in stage.get(*lease)["metadata"]["annotations"], "it is renewed")
        assert stage.get(*lease)["metadata"]["annotations"]["grapnel.dev/pause"] == "disk alarms"
        stage.kubectl("annotate", *lease, "grapnel.dev/pause-")
        wait_until(lambda: cluster.paused() is None, "the engine hears of its end")


def phase_of(seen: Seen, node: str) -> Phase | None:
    view = seen.nodes[node]
    assert isinstance(view, NodeView)
    return view.record.phase if view.record else None


@pytest.mark.functional
def test_the_command_shows_every_node_with_a_record_or_gpus_where_there_is_no_inventory(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    node, untouched = stage.make_node(), stage.make_node()
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "without-gpus"}}
    stage.kubectl("create", "-f", "-", data=bare)
    cluster = stage.connect()
    with cluster.lease("ada@laptop/1"):
        cluster.observe([node])
        cluster.write(node, RECORD, cordoned=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    account = operator(stage, "on-call", granted=VIEWED)

    assert main(["status", "--kubeconfig", str(account), "--json"]) == 1
    nodes = {each["name"]: each for each in json.loads(capsys.readouterr().out)["nodes"]}
    assert nodes[node]["state"] == "left-in-drain"
    assert nodes[untouched]["state"] == "idle"
    assert nodes[untouched]["machine"]["gpus"]["offered"] == {"nvidia.com/gpu": 4}
    assert "without-gpus" not in nodes
    assert main(["status", "--kubeconfig", str(account), untouched]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "in use not known: system:serviceaccount:default:on-call may not list pods" in told
    assert main(["status", "--kubeconfig", str(operator(stage, "asks-pods")), untouched]) == 0
    assert "in use by no pod that asks for any" in " ".join(capsys.readouterr().out.split())
