"""What of a GpuStack is believed, and what is refused with which reason."""

from __future__ import annotations

from typing import Any

import pytest

from provision.controller.stacks.decode import decode_stack, read_selector
from provision.controller.stacks.model import Stack, Unreadable, WhenDeleted
from tests.provision.stacks.samples import samples, stored


def reasons(**spec: object) -> tuple[str, ...]:
    found = decode_stack(stored(**spec))
    assert isinstance(found, Unreadable)
    return found.reasons


def test_a_stack_is_read_with_its_selector() -> None:
    found = decode_stack(stored("pool", generation=3))
    assert isinstance(found, Stack)
    assert (found.name, found.uid, found.generation) == ("pool", "uid-pool", 3)
    assert found.spec.driver.version == "550.163.01"
    assert found.selector.matches({"pool": "pool", "other": "x"})
    assert not found.selector.matches({})


@pytest.mark.parametrize(
    ("selector", "selected", "left"),
    [
        ({}, [{}, {"a": "1"}], []),
        ({"matchLabels": {"a": "1"}}, [{"a": "1"}], [{"a": "2"}, {}]),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, [{"a": "2"}], [{"a": "3"}, {}]),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}]}, [{"a": "3"}, {}], [{"a": "1"}]),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, [{"a": ""}], [{}]),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, [{}], [{"a": ""}]),
        (
            {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}]},
            [{"a": "1"}],
            [{"a": "1", "b": ""}, {}],
        ),
    ],
)
def test_selectors_mean_what_they_mean_to_kubernetes(
    selector: dict[str, Any], selected: list[dict[str, str]], left: list[dict[str, str]]
) -> None:
    found = read_selector(selector)
    assert all(found.matches(labels) for labels in selected)
    assert not any(found.matches(labels) for labels in left)


@pytest.mark.parametrize(
    ("selector", "reason"),
    [
        (None, "is missing"),
        ([], "is no label selector"),
        ({"matchLabels": ["a"]}, "is no label selector"),
        ({"matchLabels": {"a": {"b": "c"}}}, "is no label selector"),
        ({"matchExpressions": ["a"]}, "is no label selector"),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": [["x"]]}]}, "is no label selector"),
        ({"matchNames": {}}, "is no label selector"),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, "'Gt' is no operator"),
        ({"matchExpressions": [{"key": "a", "operator": "In"}]}, "In of a has no values"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["1"]}]}, "Exists of a has values"),
    ],
)
def test_other_selectors_are_refused(selector: object, reason: str) -> None:
    (told,) = reasons(nodeSelector=selector)
    assert told.startswith(f"spec.nodeSelector: {reason}")


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ({"driver": {"version": "535"}}, "spec.driver.version"),
        ({"driver": {"version": "550.163.01", "branch": "550"}}, "spec.driver.branch"),
        ({"drivers": {}}, "spec.drivers"),
        ({"driver": {"version": "550.163.01", "source": "bundle", "repository": {"folder": "/srv/b"}}}, "spec.driver"),
        ({"mig": {"layout": "a", "configFile": "mig.yaml"}}, "spec.mig.configFile"),
        ({"plugin": {"deviceClasses": ["mine.json"]}}, "spec.plugin.deviceClasses[0]"),
        ({"scheduler": {"kind": "slurm"}}, "spec.scheduler"),
        ({"rollout": {"waves": [{"groups": ["canary"]}]}}, "spec.rollout.waves[0].groups"),
        ({"rollout": {"domains": {"groups": ["rack1"]}}}, "spec.rollout.domains.groups"),
    ],
)
def test_what_a_cluster_cannot_have_is_refused_by_its_key(spec: dict[str, Any], key: str) -> None:
    assert any(each.startswith(key) for each in reasons(**spec)), reasons(**spec)


@pytest.mark.parametrize("path", ["/var/run/secrets/kubernetes.io/serviceaccount/token", "/etc/grapnel/controllers/x"])
def test_whoever_writes_a_stack_cannot_have_the_controllers_files_sent_away(path: str) -> None:
    gate = {"name": "a", "prometheus": "https://prometheus.example.com", "query": "up", "tokenFile": path}
    assert any("tokenFile" in each and path in each for each in reasons(rollout={"gates": [gate]}))
    kept = {**gate, "tokenFile": "/etc/grapnel/controller/prometheus/token"}
    assert isinstance(decode_stack(stored(rollout={"gates": [kept]})), Stack)


def test_what_becomes_of_nodes_is_keep_unless_it_is_declared() -> None:
    found = [decode_stack(stored(**spec)) for spec in ({}, {"whenDeleted": "Keep"}, {"whenDeleted": "Remove"})]
    assert [each.when_deleted for each in found if isinstance(each, Stack)] == [
        WhenDeleted.KEEP,
        WhenDeleted.KEEP,
        WhenDeleted.REMOVE,
    ]
    assert reasons(whenDeleted="Burn") == ("spec.whenDeleted: is Keep or Remove",)


def test_a_stack_that_cannot_be_used_still_says_which_nodes_are_its_own() -> None:
    found = decode_stack(stored("pool", driver={"version": "535"}))
    assert isinstance(found, Unreadable)
    assert found.selector is not None
    assert found.selector.matches({"pool": "pool"})


def test_another_version_of_the_resource_says_so() -> None:
    found = decode_stack({**stored(), "apiVersion": "grapnel.dev/v1"})
    assert isinstance(found, Unreadable)
    assert found.reasons == (
        "apiVersion is grapnel.dev/v1, and this grapnel reads grapnel.dev/v1alpha1: upgrade the controller",
    )


@pytest.mark.parametrize("spec", [None, [], "x", {"driver": []}, {"driver": {"version": {"a": [1]}}}])
def test_whatever_is_stored_there_is_an_answer(spec: object) -> None:
    assert isinstance(decode_stack({**stored(), "spec": spec}), Unreadable)


OF_YAML = {
    "alias-bomb",
    "anchors-and-merge-keys",
    "key-twice",
    "words-that-yaml-takes-for-others",
}  # of the text: an API server gets JSON
OF_THE_NAME = {"wide-characters"}


@pytest.mark.parametrize(
    "sample", [pytest.param(each, id=name) for name, each in samples("bad") if name not in OF_YAML | OF_THE_NAME]
)
def test_bad_declarations_are_refused(sample: dict[str, Any]) -> None:
    assert isinstance(decode_stack(stored(**sample["spec"])), Unreadable)
