"""Declared configurations come onto the node and go again, and the daemon reads the one that a label names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import jsonschema
import pytest
import yaml

from plugin.settings.load import Invocation, load
from provision.planning.draft.settings import daemon_settings
from provision.planning.render.node_config import NODE_CONFIG_PATH
from tests.provision.samples import configured, edit_file, make_stack, plan, simulate_apply, steps, text_of

if TYPE_CHECKING:
    from provision.declaration.fleet.facts.node import NodeFacts
    from provision.declaration.spec.model import StackSpec

CONTRACTS = Path(__file__).parents[3] / "docs/contracts"
SCHEMA = json.loads((CONTRACTS / "nvidia-config/schema.json").read_text())
DECLARED = yaml.safe_load((CONTRACTS / "gpustack/good/named-configs.yaml").read_text())["spec"]["plugin"]
FOLDER = "/etc/grapnel/nvidia.d"
LIST = "/etc/grapnel/declared-configs.json"
RELOAD = ("reload", "grapnel-node.service")


def declared(**changed: object) -> StackSpec:
    return make_stack(plugin={**DECLARED, **changed})


def after(facts: NodeFacts, stack: StackSpec) -> NodeFacts:
    done = simulate_apply(facts, plan(facts, stack))
    assert plan(done, stack).is_empty
    return done


def test_configurations_are_on_the_node_before_node_json_names_their_folder() -> None:
    result = plan(configured(), declared())

    written = [path for _, path in steps(result.items)]
    assert written[:4] == [f"{FOLDER}/{name}" for name in ("exclusive", "inference", "notebooks")] + [LIST]
    assert written.index(LIST) < written.index(NODE_CONFIG_PATH)
    assert RELOAD in steps(result.items)


def test_every_file_has_the_form_of_its_contract() -> None:
    facts = after(configured(), declared())

    texts = {name: json.loads(text_of(facts, f"{FOLDER}/{name}")) for name in DECLARED["configs"]}

    for text in texts.values():
        jsonschema.validate(text, SCHEMA)
    assert texts["exclusive"] == {"version": "v1"}
    assert texts["notebooks"]["flags"] == {
        "migStrategy": "mixed",
        "plugin": {"sharedDevicesAllocationPolicy": "packed"},
    }
    assert texts["notebooks"]["sharing"] == DECLARED["configs"]["notebooks"]["sharing"]


@pytest.mark.parametrize(
    ("label", "shares"),
    [
        (None, []),
        ("inference", [("nvidia.com/gpu", 4)]),
        ("notebooks", [("nvidia.com/mig-small.shared", 2), ("nvidia.com/gpu", 8)]),
    ],
    ids=["no label", "a label", "another label"],
)
def test_the_daemon_offers_what_the_label_names(
    label: str | None, shares: list[tuple[str, int]], tmp_path: Path
) -> None:
    facts = after(configured(), declared())
    folder = tmp_path / "nvidia.d"
    folder.mkdir()
    for name in DECLARED["configs"]:
        (folder / name).write_text(text_of(facts, f"{FOLDER}/{name}"))
    own = tmp_path / "node.json"
    own.write_text(text_of(facts, NODE_CONFIG_PATH).replace(FOLDER, str(folder)))

    config = load(Invocation(own, {}, {}), label=label).config

    assert [(rule.shown_as, rule.replicas) for rule in config.settings.shares] == shares


def test_a_configuration_that_is_declared_no_more_is_taken_away_and_no_other() -> None:
    facts = edit_file(after(configured(), declared()), f"{FOLDER}/own", "version: v1\n")
    fewer = declared(configs={"exclusive": {}})

    result = plan(facts, fewer)

    assert [step for step in steps(result.items) if step[0] == "remove"] == [
        ("remove", f"{FOLDER}/inference"),
        ("remove", f"{FOLDER}/notebooks"),
    ]
    left = after(facts, fewer)
    assert left.file(f"{FOLDER}/notebooks") is None
    assert left.file(f"{FOLDER}/own") is not None


def test_without_any_configuration_node_json_names_no_folder() -> None:
    facts = after(after(configured(), declared()), make_stack())

    assert "nvidiaConfigFolder" not in json.loads(text_of(facts, NODE_CONFIG_PATH))
    assert facts.file(f"{FOLDER}/exclusive") is None


@pytest.mark.parametrize("said", ['{"declared": ["../../passwd"]}', '{"declared": 7}', "["])
def test_a_list_on_the_node_that_says_anything_takes_nothing_else_away(said: str) -> None:
    facts = edit_file(edit_file(after(configured(), declared()), LIST, said), f"{FOLDER}/own", "x")

    assert not [step for step in steps(plan(facts, make_stack()).items) if step[0] == "remove"]


def test_a_declaration_can_be_read_back_from_a_node() -> None:
    found = {key: value for key, value, _ in daemon_settings(after(configured(), declared()))}

    assert found["configs"] == DECLARED["configs"]
    assert found["defaultConfig"] == "exclusive"
