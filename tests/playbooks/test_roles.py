from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml
from ansible_collections.grapnel.node.plugins.action.plan import ActionModule

from provision.planning.node_plan import (
    DriverVariables,
    KubeletVariables,
    NodeDaemonVariables,
    Role,
    RuntimeVariables,
    TuningVariables,
)
from provision.planning.supply.payload.sources import find_sources

if TYPE_CHECKING:
    from collections.abc import Iterator

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
VARIABLES = {
    "driver": DriverVariables,
    "runtime": RuntimeVariables,
    "tuning": TuningVariables,
    "kubelet": KubeletVariables,
    "node_daemon": NodeDaemonVariables,
}


def read(path: str) -> Any:
    return yaml.safe_load((PLAYBOOKS / path).read_text())


def options(role: str, entry_point: str = "planned") -> dict[str, Any]:
    specs: dict[str, Any] = read(f"roles/{role}/meta/argument_specs.yml")["argument_specs"][entry_point]["options"]
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


@pytest.mark.slow
@pytest.mark.parametrize("role", VARIABLES)
def test_carrying_out_hands_every_variable_on(role: str) -> None:
    tasks = read("roles/apply/tasks/carry_out.yml")
    (task,) = (one for one in tasks if one.get("vars", {}).keys() & options(role).keys())

    assert task["ansible.builtin.include_role"]["name"] == f"grapnel.node.{role}"
    assert task["ansible.builtin.include_role"]["tasks_from"] == "planned"
    assert task["vars"] == {name: f"{{{{ apply_plan.roles.{role}.{name} }}}}" for name in options(role)}


def test_every_role_is_a_table_of_contents() -> None:
    for role in VARIABLES:
        tasks = read(f"roles/{role}/tasks/planned.yml")
        assert all({"ansible.builtin.import_tasks", "ansible.builtin.meta"} & task.keys() for task in tasks)


def test_a_role_on_its_own_is_the_whole_way_with_that_role_alone() -> None:
    for role in VARIABLES:
        (task,) = read(f"roles/{role}/tasks/main.yml")
        assert task["ansible.builtin.import_role"] == {"name": "grapnel.node.grapnel"}
        assert task["vars"] == {"grapnel_roles": [role]}


def test_the_whole_way_knows_every_role_that_plans_name() -> None:
    specs = options("grapnel", "main")

    assert (
        specs["grapnel_roles"]["choices"] == [role.value for role in Role] == ActionModule.ARGUMENTS["roles"]["choices"]
    )
    assert {name: option["default"] for name, option in specs.items()} == read("roles/grapnel/defaults/main.yml")


def test_the_units_that_are_linked_travel_in_the_hooks_archive() -> None:
    (task,) = read("roles/runtime/tasks/hook.yml")

    assert sorted(task["grapnel.node.installation"]["units"]) == [
        unit.name for unit in find_sources(Path(__file__).parents[2]).hook_units
    ]


# What runs on the controller alone, or says what runs next.
ON_THE_CONTROLLER = {
    "ansible.builtin.assert",
    "ansible.builtin.debug",
    "ansible.builtin.fail",
    "ansible.builtin.import_role",
    "ansible.builtin.import_tasks",
    "ansible.builtin.include_role",
    "ansible.builtin.include_tasks",
    "ansible.builtin.meta",
    "ansible.builtin.set_fact",
}


def tasks_of(content: Any) -> Iterator[dict[str, Any]]:
    for task in content or []:
        if isinstance(task, dict):
            inner = [key for key in ("block", "rescue", "always", "tasks", "handlers") if key in task]
            if not inner and "hosts" not in task:
                yield task
            for key in inner:
                yield from tasks_of(task[key])


WITH_TASKS = [
    str(path.relative_to(PLAYBOOKS))
    for path in sorted([*PLAYBOOKS.glob("*.yml"), *PLAYBOOKS.glob("roles/*/*/*.yml")])
    if path.parent.name not in ("meta", "defaults") and path.name != "galaxy.yml"
]


@pytest.mark.slow
@pytest.mark.parametrize("path", WITH_TASKS)
def test_every_answer_of_a_node_passes_an_action_that_checks_it(path: str) -> None:
    for task in tasks_of(read(path)):
        (module,) = (key for key in task if "." in key)
        assert module in ON_THE_CONTROLLER or is_checked(module), f"{task['name']}: {module}"


def is_checked(module: str) -> bool:
    name = module.removeprefix("grapnel.node.")
    action = PLAYBOOKS / "plugins" / "action" / f"{name}.py"
    text = action.read_text() if action.is_file() else ""
    return "(CheckedAction)" in text or "(ControllerAction)" in text
