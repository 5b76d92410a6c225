from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from provision.payload.sources import find_sources
from provision.planner.model import DriverVariables, NodeDaemonVariables, RuntimeVariables

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
VARIABLES = {"driver": DriverVariables, "runtime": RuntimeVariables, "node_daemon": NodeDaemonVariables}


def read(path: str) -> Any:  # noqa: ANN401 - YAML is of any type
    return yaml.safe_load((PLAYBOOKS / path).read_text())


def options(role: str) -> dict[str, Any]:
    specs: dict[str, Any] = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"]["main"]["options"]
    return specs


@pytest.mark.parametrize("role", VARIABLES)
def test_defaults_are_the_argument_specs(role: str) -> None:
    specified = {name: option["default"] for name, option in options(role).items() if "default" in option}

    assert specified == read(f"roles/{role}/defaults/main.yml")
    assert all(option.get("required") or name in specified for name, option in options(role).items())


@pytest.mark.parametrize("role", VARIABLES)
def test_variables_have_the_roles_prefix_and_a_description(role: str) -> None:
    assert all(name.startswith(f"{role}_") for name in options(role))
    assert all(option["description"] for option in options(role).values())


@pytest.mark.parametrize(("role", "values"), VARIABLES.items())
def test_the_planner_fills_exactly_the_roles_variables(role: str, values: type[msgspec.Struct]) -> None:
    planned = {field.encode_name for field in msgspec.structs.fields(values)}

    assert planned == set(options(role))


@pytest.mark.parametrize("role", VARIABLES)
def test_carrying_out_hands_every_variable_on(role: str) -> None:
    tasks = read("roles/carry_out/tasks/main.yml")
    (task,) = (one for one in tasks if one.get("vars", {}).keys() & options(role).keys())

    assert task["ansible.builtin.include_role"]["name"] == f"grapnel.node.{role}"
    assert task["vars"] == {name: f"{{{{ carry_out_plan.roles.{role}.{name} }}}}" for name in options(role)}


def test_every_role_is_a_table_of_contents() -> None:
    for role in VARIABLES:
        tasks = read(f"roles/{role}/tasks/main.yml")
        assert all({"ansible.builtin.import_tasks", "ansible.builtin.meta"} & task.keys() for task in tasks)


def test_the_units_that_are_linked_travel_in_the_hooks_archive() -> None:
    (block,) = (task["block"] for task in read("roles/runtime/tasks/hook.yml"))
    (linked,) = (task["loop"] for task in block if "ansible.builtin.file" in task)

    assert linked == [unit.name for unit in find_sources(Path(__file__).parents[2]).hook_units]
