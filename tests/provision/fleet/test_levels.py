"""Merging the levels: which one wins, what is kept, and which one is named."""

from __future__ import annotations

from provision.declaration.fleet.endpoint import Endpoint
from provision.declaration.fleet.inventory import Host
from provision.declaration.fleet.levels import Contribution, Variable, merge_node, said
from provision.declaration.fleet.model import FleetNode, Level, Origin
from provision.declaration.spec.model import Capability, Repository, StackSpec
from provision.declaration.spec.text.document import read_document


def group(name: str, content: object) -> Contribution:
    return said(Level.GROUP, content, Variable(f"group {name}"), ())


def merged(*contributions: Contribution) -> FleetNode:
    return merge_node(Host("n1", ("all",), Endpoint("n1")), contributions)


def told(origin: Origin | None) -> list[tuple[str, object]]:
    """Return who said what, strongest first."""
    found = []
    while origin is not None:
        found.append((str(origin.where), origin.value))
        origin = origin.overrode
    return found


def test_without_any_level_a_node_has_the_defaults() -> None:
    node = merged()
    assert node.stack == StackSpec()
    assert {origin.level for origin in node.origins.values()} == {Level.DEFAULT}
    assert told(node.origins["driver.version"]) == [("built in", None)]


def test_a_stronger_level_wins_and_the_weaker_ones_are_remembered() -> None:
    text = b'spec:\n  driver:\n    version: "1"\n'
    document = read_document(text, "grapnel.yaml")
    file = said(Level.FILE, {"driver": {"version": "470.256.02"}}, document, ("spec",))
    host = said(Level.HOST, {"driver": {"version": "550.163.01"}}, Variable("host n1"), ())
    node = merged(file, group("all", {"driver": {"version": "535.183.06"}}), host)
    assert node.stack.driver.version == "550.163.01"
    assert told(node.origins["driver.version"]) == [
        ("host n1", "550.163.01"),
        ("group all", "535.183.06"),
        ("grapnel.yaml:3:14", "470.256.02"),
        ("built in", None),
    ]


def test_mappings_are_merged_key_by_key() -> None:
    node = merged(
        group("all", {"node": {"labels": {"a": "1", "b": "1"}}, "driver": {"hold": False}}),
        group("gpu", {"node": {"labels": {"b": "2", "x.y/c": "3"}}}),
    )
    assert node.stack.node.labels == {"a": "1", "b": "2", "x.y/c": "3"}
    assert node.stack.driver.hold is False
    assert told(node.origins["node.labels.a"]) == [("group all", "1")]
    assert told(node.origins["node.labels.b"]) == [("group gpu", "2"), ("group all", "1")]
    assert told(node.origins['node.labels["x.y/c"]']) == [("group gpu", "3")]
    assert "node.labels" not in node.origins


def test_lists_are_replaced_as_a_whole() -> None:
    node = merged(
        group("all", {"driver": {"capabilities": ["compute", "video"]}}),
        group("gpu", {"driver": {"capabilities": ["utility"]}}),
    )
    assert node.stack.driver.capabilities == (Capability.UTILITY,)


def test_a_key_that_holds_nothing_says_nothing() -> None:
    node = merged(
        group("all", {"driver": {"version": "550.163.01"}}),
        group("gpu", {"driver": {"version": None}, "runtime": None, "node": {}}),
    )
    assert node.stack.driver.version == "550.163.01"
    assert str(node.origins["driver.version"].where) == "group all"
    assert said(Level.HOST, None, Variable("host n1"), ()).content == {}


def test_merging_changes_no_level() -> None:
    content = {"node": {"labels": {"a": "1"}}}
    merged(group("all", content), group("gpu", {"node": {"labels": {"b": "2"}}}))
    assert content == {"node": {"labels": {"a": "1"}}}


def test_a_level_that_declares_a_version_takes_back_the_branch_of_a_weaker_one() -> None:
    node = merged(group("all", {"driver": {"branch": "550"}}), group("gpu", {"driver": {"version": "535.309.01"}}))
    assert (node.stack.driver.version, node.stack.driver.branch) == ("535.309.01", None)
    assert told(node.origins["driver.branch"]) == [("group gpu", None), ("group all", "550"), ("built in", None)]


def test_the_strongest_of_several_alternatives_counts() -> None:
    node = merged(
        group("all", {"driver": {"version": "535.309.01"}}),
        group("gpu", {"driver": {"branch": "550"}}),
        group("canary", {"driver": {"version": "550.163.01"}}),
    )
    assert (node.stack.driver.version, node.stack.driver.branch) == ("550.163.01", None)


def test_a_level_that_declares_both_alternatives_is_left_to_the_rules() -> None:
    node = merged(
        group("all", {"driver": {"version": "535.309.01"}}),
        group("gpu", {"driver": {"branch": "550", "version": "550.163.01"}}),
    )
    assert (node.stack.driver.version, node.stack.driver.branch) == ("550.163.01", "550")


def test_alternatives_inside_a_section_are_taken_back_alike() -> None:
    url = {"driver": {"repository": {"url": "https://mirror.example.com/cuda"}}}
    node = merged(group("all", url), group("gpu", {"driver": {"repository": {"folder": "/srv/bundle"}}}))
    assert node.stack.driver.repository == Repository(folder="/srv/bundle")
    assert "driver.repository" not in node.origins


def test_a_key_without_a_value_takes_nothing_back() -> None:
    node = merged(group("all", {"driver": {"branch": "550"}}), group("gpu", {"driver": {"version": None}}))
    assert node.stack.driver.branch == "550"


def test_keys_below_a_mapping_stand_where_the_model_has_the_mapping() -> None:
    said = {"labels": {"b": "1", "a": "2"}}
    keys = list(merged(group("all", {"node": said, "driver": {"signing": {"key": "/k", "certificate": "/c"}}})).origins)
    assert keys[keys.index("node.labels.b") :][:3] == ["node.labels.b", "node.labels.a", "node.taints"]
    assert keys[keys.index("driver.signing.key") :][:3] == [
        "driver.signing.key", "driver.signing.certificate", "driver.compile",
    ]  # fmt: skip
