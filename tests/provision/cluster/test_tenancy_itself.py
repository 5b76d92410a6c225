"""Quotas and priorities on a real API server: applied, compared, shared by stacks, refused, taken back."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from lab.machine.errors import CommandError
from provision.cluster import open_api
from provision.cluster.errors import ForbiddenError
from provision.cluster.kubernetes.permissions import QUEUES, TENANCY_GRANT, TENANTS
from provision.cluster.kubernetes.tenancy.keeper import TenancyKeeper
from provision.declaration.spec.model import Tenancy
from provision.declaration.spec.validate import convert
from provision.rollout.interface.tenancy import TenancyOrder
from tests.provision.cluster.stage import wait_until
from tests.provision.cluster.test_access import operator, permissions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from provision.cluster.kubernetes.api.client import Api
    from provision.rollout.interface.tenancy import TenancyChange
    from tests.provision.cluster.stage import Stage

_NUMBERS = itertools.count(1)
GPU = "nvidia.com/gpu"
GRANTED = [yaml.safe_load((Path(__file__).parents[3] / TENANCY_GRANT).read_text())]


def order(stack: str = "default", **section: Any) -> TenancyOrder:
    """Return what a stack declares."""
    return TenancyOrder(stack, convert(section, Tenancy))


@dataclass
class Tenants:
    """Namespaces of a test, and what is done to them."""

    stage: Stage
    stack: str
    names: list[str] = field(default_factory=list)

    def make(self) -> str:
        """Make a namespace that no other test uses."""
        self.names.append(f"tenant-{next(_NUMBERS)}")
        self.stage.kubectl("create", "namespace", self.names[-1])
        wait_until(lambda: self._has_account(self.names[-1]), "pods can be created in the namespace")
        return self.names[-1]

    def _has_account(self, name: str) -> bool:
        return "default" in self.stage.kubectl("get", "serviceaccounts", "-n", name, "-o", "name")

    def order(self, **section: Any) -> TenancyOrder:
        return order(self.stack, **section)

    def compare(self, wanted: TenancyOrder) -> TenancyChange:
        return self.stage.connect().compare_tenancy(wanted)

    def bring(self, wanted: TenancyOrder) -> TenancyChange:
        """Apply, having made sure that the comparison says what is done then, and nothing remains afterwards."""
        foreseen = self.compare(wanted)
        done = self.stage.connect().set_tenancy(wanted)
        assert done == foreseen
        assert self.compare(wanted).changes == ()
        return done

    def api(self) -> Api:
        """Connect as the administrator."""
        found = open_api(self.stage.control_plane.kubeconfig, None, {})
        assert found is not None
        return found

    def quota(self, namespace: str, name: str = "grapnel") -> dict[str, str]:
        found: dict[str, str] = self.stage.get("resourcequota", name, "-n", namespace)["spec"]["hard"]
        return found

    def pod(self, namespace: str, gpus: int = 0, **spec: object) -> None:
        limits = {"limits": {GPU: str(gpus)}} if gpus else {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pod-{next(_NUMBERS)}", "namespace": namespace},
            "spec": {"containers": [{"name": "main", "image": "x", "resources": limits}], **spec},
        }
        self.stage.kubectl("create", "-f", "-", data=pod)


@pytest.fixture
def tenants(stage: Stage) -> Iterator[Tenants]:
    made = Tenants(stage, f"stack-{next(_NUMBERS)}")
    yield made
    stage.connect().set_tenancy(made.order())


def test_the_file_grants_what_is_needed_and_nothing_else() -> None:
    assert set.union(*map(permissions, GRANTED)) == set(TENANTS) | set(QUEUES)


@pytest.mark.functional
def test_a_quota_is_made_changed_and_taken_back(tenants: Tenants) -> None:
    place = tenants.make()
    wanted = tenants.order(tenants=[{"namespace": place, "quota": {GPU: 2, "cpu": "4000m"}}])
    made = f"ResourceQuota {place}/grapnel is created: cpu 4000m, {GPU} 2"
    assert tenants.compare(wanted).changes == (made,)
    assert "resourcequota" not in tenants.stage.kubectl("get", "resourcequotas", "-n", place, "-o", "name")
    assert tenants.bring(wanted).changes == (made,)
    assert tenants.quota(place) == {f"requests.{GPU}": "2", "cpu": "4"}

    fewer = tenants.order(tenants=[{"namespace": place, "quota": {GPU: 1}}])
    assert tenants.bring(fewer).changes == (f"ResourceQuota {place}/grapnel: cpu 4 → nothing, {GPU} 2 → 1",)
    assert tenants.quota(place) == {f"requests.{GPU}": "1"}

    gone = f"ResourceQuota {place}/grapnel is deleted: it is declared no more"
    assert tenants.bring(tenants.order()).changes == (gone,)
    assert "resourcequota" not in tenants.stage.kubectl("get", "resourcequotas", "-n", place, "-o", "name")


@pytest.mark.functional
def test_a_pod_beyond_the_quota_is_refused_in_words_that_name_it(tenants: Tenants) -> None:
    place = tenants.make()
    tenants.bring(tenants.order(tenants=[{"namespace": place, "quota": {GPU: 2}}]))
    wait_until(lambda: "hard" in tenants.stage.get("resourcequota", "grapnel", "-n", place)["status"], "it is counted")
    tenants.pod(place, gpus=1)
    with pytest.raises(CommandError) as caught:
        tenants.pod(place, gpus=2)
    told = f"exceeded quota: grapnel, requested: requests.{GPU}=2, used: requests.{GPU}=1, limited: requests.{GPU}=2"
    assert told in str(caught.value) + caught.value.hint


@pytest.mark.functional
def test_containers_have_their_defaults_and_no_gpu_that_they_did_not_ask_for(tenants: Tenants) -> None:
    place = tenants.make()
    containers = {"default": {"cpu": "2"}, "defaultRequest": {"cpu": "500m"}, "max": {GPU: 4}}
    tenants.bring(tenants.order(tenants=[{"namespace": place, "containers": containers}]))
    tenants.pod(place)
    (pod,) = tenants.stage.get("pods", "-n", place)["items"]
    held = pod["spec"]["containers"][0]["resources"]
    assert held == {"limits": {"cpu": "2", GPU: "0"}, "requests": {"cpu": "500m", GPU: "0"}}
    tenants.pod(place, gpus=4)
    with pytest.raises(CommandError) as caught:
        tenants.pod(place, gpus=5)
    assert f"maximum {GPU} usage per Container is 4, but limit is 5" in str(caught.value) + caught.value.hint


@pytest.mark.functional
def test_a_priority_class_is_made_again_where_its_value_changes(tenants: Tenants) -> None:
    name, place = f"urgent-{next(_NUMBERS)}", tenants.make()
    tenant = {"namespace": place, "byPriority": {name: {"pods": 1}}}
    section: dict[str, Any] = {"tenants": [tenant]}
    tenants.bring(tenants.order(**section, priorities=[{"name": name, "value": 10, "preempts": False}]))
    found = tenants.stage.get("priorityclass", name)
    assert (found["value"], found["preemptionPolicy"]) == (10, "Never")
    assert tenants.quota(place, f"grapnel-{name}") == {"pods": "1"}

    done = tenants.bring(tenants.order(**section, priorities=[{"name": name, "value": 20}]))
    changes = "preemptionPolicy Never → PreemptLowerPriority, value 10 → 20"
    assert done.changes == (f"PriorityClass {name} is made again: {changes}",)

    tenants.pod(place, priorityClassName=name)
    with pytest.raises(CommandError, match="exceeded quota"):
        tenants.pod(place, priorityClassName=name)
    tenants.pod(place)  # of no class


@pytest.mark.functional
def test_what_two_stacks_declare_alike_is_theirs_together(tenants: Tenants) -> None:
    place = tenants.make()
    section = {"tenants": [{"namespace": place, "quota": {GPU: 2}}]}
    other = f"{tenants.stack}-b"
    tenants.bring(tenants.order(**section))
    done = tenants.bring(order(other, **section))
    assert done.changes == (f"ResourceQuota {place}/grapnel is declared by stack {tenants.stack} as well",)

    left = tenants.bring(tenants.order())
    assert left.changes == (f"ResourceQuota {place}/grapnel stays, by stack {other} alone",)
    assert tenants.quota(place) == {f"requests.{GPU}": "2"}
    assert tenants.bring(order(other)).changes == (f"ResourceQuota {place}/grapnel is deleted: it is declared no more",)


@pytest.mark.functional
def test_two_stacks_that_declare_a_namespace_differently_are_told(tenants: Tenants) -> None:
    place, name = tenants.make(), f"class-{next(_NUMBERS)}"
    other = f"{tenants.stack}-b"
    tenant = {"namespace": place, "quota": {GPU: 2}}
    tenants.bring(tenants.order(tenants=[tenant], priorities=[{"name": name, "value": 1}]))
    wanted = order(
        other,
        tenants=[{**tenant, "quota": {GPU: 3}}],
        priorities=[{"name": name, "value": 2}],
    )
    told = tenants.bring(wanted)
    assert told.changes == ()
    assert told.problems == (
        f"PriorityClass {name} is declared otherwise by stack {tenants.stack}: value 1 → 2",
        f"ResourceQuota {place}/grapnel keeps {GPU}, which stack {tenants.stack} has set to another value",
    )
    assert tenants.quota(place) == {f"requests.{GPU}": "2"}


@pytest.mark.functional
def test_what_somebody_has_changed_by_hand_stays_and_is_told(tenants: Tenants) -> None:
    place = tenants.make()
    wanted = tenants.order(tenants=[{"namespace": place, "quota": {GPU: 2}}])
    tenants.bring(wanted)
    edit = json.dumps({"spec": {"hard": {f"requests.{GPU}": "7"}}})
    tenants.stage.kubectl("patch", "resourcequota", "grapnel", "-n", place, "--type=merge", "-p", edit)
    told = tenants.bring(wanted)
    assert told.changes == ()
    assert told.problems == (
        f"ResourceQuota {place}/grapnel keeps {GPU}, which kubectl-patch has set to another value",
    )
    assert tenants.quota(place) == {f"requests.{GPU}": "7"}


@pytest.mark.functional
def test_objects_of_others_are_never_changed(tenants: Tenants) -> None:
    place, name = tenants.make(), f"theirs-{next(_NUMBERS)}"
    tenants.stage.kubectl("create", "quota", "grapnel", "-n", place, "--hard=pods=5")
    tenants.stage.kubectl("create", "priorityclass", name, "--value=5")
    before = tenants.stage.get("resourcequota", "grapnel", "-n", place)
    wanted = tenants.order(tenants=[{"namespace": place, "quota": {GPU: 2}}], priorities=[{"name": name, "value": 5}])
    told = tenants.bring(wanted)
    assert told.changes == ()
    assert told.problems[0].startswith(f"PriorityClass {name} is there already, and is not grapnel's: kubectl-create")
    assert told.problems[1].startswith(f"ResourceQuota {place}/grapnel is there already, and is not grapnel's:")
    tenants.bring(tenants.order())
    after = tenants.stage.get("resourcequota", "grapnel", "-n", place)
    assert (after["spec"], after["metadata"].get("labels")) == (before["spec"], before["metadata"].get("labels"))
    tenants.stage.kubectl("delete", "priorityclass", name)


@pytest.mark.functional
def test_a_namespace_that_is_not_there_is_told_and_the_others_are_done(tenants: Tenants) -> None:
    place = tenants.make()
    section = [{"namespace": each, "quota": {GPU: 1}} for each in ("not-there", place)]
    done = tenants.bring(tenants.order(tenants=section))
    (told,) = done.problems
    assert told.startswith(
        "ResourceQuota not-there/grapnel: there is no namespace not-there (`kubectl create namespace"
    )
    assert tenants.quota(place) == {f"requests.{GPU}": "1"}


@pytest.mark.functional
def test_what_nothing_here_serves_is_told(tenants: Tenants) -> None:
    queues = [{"name": "q", "quotas": [{"flavor": "h100", "resources": {GPU: 8}}]}]
    told = tenants.bring(tenants.order(gangs="any", kueue={"flavors": [{"name": "h100"}], "queues": queues}))
    assert told.changes == ()
    assert [each.partition(":")[0] for each in told.problems] == ["tenancy.kueue", "tenancy.gangs"]
    assert "GangScheduling" in told.problems[1]
    (alone,) = tenants.bring(tenants.order(gangs="kubernetes")).problems
    assert alone.startswith("tenancy.gangs: this cluster has no gang scheduling of its own: it takes Kubernetes 1.37")


@pytest.mark.functional
def test_whatever_request_it_is_killed_at_the_next_apply_finishes_it(tenants: Tenants) -> None:
    place, name, api = tenants.make(), f"killed-{next(_NUMBERS)}", tenants.api()
    quota = {"namespace": place, "quota": {GPU: 1}}
    before = tenants.order(tenants=[quota], priorities=[{"name": name, "value": 1}])
    limits = {"namespace": place, "containers": {"max": {GPU: 1}}}
    after = tenants.order(tenants=[limits], priorities=[{"name": name, "value": 2}])  # makes, makes again, deletes
    for allowed in range(20):
        tenants.bring(before)
        left = iter(range(allowed))
        try:
            TenancyKeeper(api, api.guarded(lambda left=left: _spend(left))).bring(after)  # type: ignore[misc] # bound now
        except KilledError:
            tenants.bring(after)
        else:
            break
        assert tenants.stage.get("priorityclass", name)["value"] == 2
    assert allowed == 4  # the class is deleted and made, the limits are made, the quota is deleted


class KilledError(BaseException):
    """The process ends here."""


def _spend(left: Iterator[int]) -> None:
    if next(left, None) is None:
        raise KilledError


@pytest.mark.functional
def test_with_nothing_to_do_it_costs_a_list_of_each_kind_and_a_dry_run_of_each_object(tenants: Tenants) -> None:
    places = [tenants.make() for _number in range(3)]
    wanted = tenants.order(tenants=[{"namespace": place, "quota": {GPU: 1}} for place in places])
    tenants.bring(wanted)
    asked: list[str] = []
    api = tenants.api()
    TenancyKeeper(api.guarded(lambda: asked.append("look")), api.guarded(lambda: asked.append("dry run"))).compare(
        wanted
    )
    assert (asked.count("look"), asked.count("dry run")) == (1 + 3, 3)


@pytest.mark.functional
def test_without_the_role_every_missing_rule_is_named_and_with_it_all_of_it_works(tenants: Tenants) -> None:
    stage, place = tenants.stage, tenants.make()
    wanted = tenants.order(tenants=[{"namespace": place, "quota": {GPU: 1}}])
    nobody = stage.connect(operator(stage, f"{tenants.stack}-nobody", granted=[replace_rules([])]))
    assert nobody.compare_tenancy(tenants.order()).changes == ()  # nothing is declared, and nothing is needed
    with pytest.raises(ForbiddenError) as raised:
        nobody.compare_tenancy(wanted)
    assert raised.value.hint.startswith(f"{TENANCY_GRANT} grants what tenancy needs; missing rules:")
    assert all(each.rule in raised.value.hint for each in TENANTS)

    missing = next(each for each in TENANTS if (each.verb, each.resource) == ("create", "resourcequotas"))
    rules = [{**rule, "resources": [name]} for rule in GRANTED[0]["rules"] for name in rule["resources"]]
    some = stage.connect(operator(stage, f"{tenants.stack}-some", without=missing, granted=[replace_rules(rules)]))
    with pytest.raises(ForbiddenError) as raised:
        some.set_tenancy(wanted)
    assert raised.value.hint.endswith(f"missing rules:\n  - {missing.rule}")

    able = stage.connect(operator(stage, f"{tenants.stack}-able", granted=[replace_rules(rules)]))
    able.set_tenancy(wanted)
    assert tenants.quota(place) == {f"requests.{GPU}": "1"}
    able.set_tenancy(tenants.order())
    assert "resourcequota" not in stage.kubectl("get", "resourcequotas", "-n", place, "-o", "name")


def replace_rules(rules: list[dict[str, Any]]) -> dict[str, Any]:
    return {**GRANTED[0], "rules": rules}
