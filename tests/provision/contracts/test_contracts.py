"""Formats that the planner owns: schemas follow the types, good samples pass, bad ones are refused with their path."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import jsonschema
import msgspec
import pytest

from provision.declaration.fleet.errors import FactsError
from provision.declaration.fleet.facts.node import parse_facts
from provision.planning.node_plan import NodePlan
from tests.provision.contracts.schemas import CONTRACTS, TYPES, render_schema
from tests.provision.samples import as_json, configured, make_facts, make_stack, plan
from tests.schema import require_schema

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GOOD = {name: sorted(CONTRACTS.joinpath(name, "good").glob("*.json")) for name in TYPES}
BAD = {name: sorted(CONTRACTS.joinpath(name, "bad").glob("*.json")) for name in TYPES}


def samples(kind: Mapping[str, list[Path]], name: str) -> pytest.MarkDecorator:
    assert kind[name]
    return pytest.mark.parametrize("sample", kind[name], ids=lambda path: path.stem)


@pytest.mark.parametrize("name", TYPES)
def test_the_schema_is_the_types(name: str) -> None:
    stored = json.loads(CONTRACTS.joinpath(name, "schema.json").read_text())

    assert stored == render_schema(name), "run: python tests/provision/contracts/schemas.py"


@pytest.mark.slow
@pytest.mark.parametrize("sample", [path for paths in GOOD.values() for path in paths], ids=lambda path: path.stem)
def test_good_samples_follow_the_schema(sample: Path) -> None:
    require_schema(json.loads(sample.read_text()), render_schema(sample.parents[1].name))


@pytest.mark.slow
@pytest.mark.parametrize("sample", [path for paths in BAD.values() for path in paths], ids=lambda path: path.stem)
def test_bad_samples_do_not(sample: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        require_schema(json.loads(sample.read_text()), render_schema(sample.parents[1].name))


@samples(GOOD, "node-facts")
def test_good_facts_are_read_and_planned_for(sample: Path) -> None:
    facts = parse_facts(sample.read_bytes())

    if facts.node.os.id != "debian":
        return  # the declaration below is about Debian's packages
    version = "535.309.01" if "bookworm" in sample.stem else "550.163.01"
    runtime = {"engine": facts.kubelet_engine or "containerd"}
    assert plan(facts, make_stack(driver={"version": version}, runtime=runtime)).problems == ()


@samples(BAD, "node-facts")
def test_bad_facts_name_node_and_path(sample: Path) -> None:
    expected = {
        "apparmor-mode-of-selinux": "invalid enum value 'enforcing' - at `$.apparmor.mode`",
        "age-is-a-text": "expected `float | null`, got `str` - at `$.package_manager.lists_age_s`",
        "content-is-an-object": "expected `str | null`, got `object` - "
        'at `$.files["/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json"].content`',
        "product-file-below-no-root": r"expected `str` matching regex '^/[^\\x00-\\x1f\\x7f-\\x9f]*$(?!\\n)' - "
        "at `$.product_files[0]`",
        "file-below-no-root": r"expected `str` matching regex '^/[^\\x00-\\x1f\\x7f-\\x9f]*$(?!\\n)' - "
        "at `key` in `$.files`",
        "hold-is-a-word": 'expected `bool`, got `str` - at `$.packages["libcuda1"].hold`',
        "hostname-is-an-option": r"expected `str` matching regex '^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\\n)' - "
        "at `$.node.hostname`",
        "kernel-with-a-path": r"expected `str` matching regex '^[A-Za-z0-9._+~:@-]*$(?!\\n)' - "
        "at `$.kernels[0].release`",
        "mode-is-not-octal": r"expected `str` matching regex '^[0-7]{4}$(?!\\n)' - "
        'at `$.files["/etc/docker/daemon.json"].mode`',
        "on-disk-is-a-number": "expected `str | null`, got `float` - at `$.module.on_disk`",
        "process-without-a-number": "expected `int` >= 1 - at `$.device_holders[0].pid`",
        "run-in-no-state": "invalid enum value 'finished' - at `$.driver.run.state`",
        "schema-of-the-future": "invalid enum value 'grapnel.dev/facts/v2' - at `$.schema`",
        "size-of-a-user-id": 'expected `int` <= 4294967295 - at `$.files["/etc/docker/daemon.json"].uid`',
        "selinux-mode-of-its-own": "invalid enum value 'on' - at `$.selinux.mode`",
        "space-below-nothing": "expected `int` >= 0 - at `$.disk_free[...]`",
        "trace-without-a-date": "expected `int`, got `str` - at `$.traces.packages[...].time`",
        "version-of-two-lines": "expected `str` matching regex "
        r"'^(([0-9]{1,9}:)?[A-Za-z0-9][A-Za-z0-9.+~_^-]*)?$(?!\\n)'"
        ' - at `$.packages["libcuda1"].version`',
        "without-node": "object missing required field `node`",
    }

    with pytest.raises(FactsError) as raised:
        parse_facts(sample.read_bytes(), node="n7")

    assert raised.value.message == f"facts of n7: {expected[sample.stem]}"
    assert raised.value.hint


def test_facts_without_a_name_from_the_inventory_are_named_by_themselves() -> None:
    with pytest.raises(FactsError, match="facts of n1: expected `bool`"):
        parse_facts(CONTRACTS.joinpath("node-facts/bad/hold-is-a-word.json").read_bytes())
    with pytest.raises(FactsError, match="facts of a node without a name: "):
        parse_facts(CONTRACTS.joinpath("node-facts/bad/hostname-is-an-option.json").read_bytes())


@pytest.mark.slow
@samples(GOOD, "node-plan")
def test_good_plans_are_read_and_written_back(sample: Path) -> None:
    read = msgspec.json.decode(sample.read_bytes(), type=NodePlan)

    assert json.loads(msgspec.json.encode(read)) == json.loads(sample.read_text())


@samples(BAD, "node-plan")
def test_bad_plans_are_refused(sample: Path) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(sample.read_bytes(), type=NodePlan)


@pytest.mark.slow
def test_plans_follow_their_schema() -> None:
    for current in (plan(make_facts()), plan(configured())):
        require_schema(json.loads(msgspec.json.encode(current)), render_schema("node-plan"))


def test_what_a_newer_module_says_besides_is_ignored() -> None:
    newer = as_json(configured()) | {"weather": "fine"}
    newer["node"]["rack"] = "b7"

    assert parse_facts(newer) == configured()


@pytest.mark.slow
@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"null", b'{"node": 3}'])
def test_nonsense_is_an_error_and_not_a_crash(text: bytes) -> None:
    with pytest.raises(FactsError, match="facts of n9: "):
        parse_facts(text, node="n9")
