"""The steps that a plan tells the durations of are tasks of the roles."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from provision.apply.carried_out import STEPS, step_of
from provision.planning.node_plan import Action, Role
from tests.provision.apply.fakes import item

ROLES = Path(__file__).parents[3] / "playbooks" / "roles"


@pytest.mark.parametrize("step", sorted(STEPS))
def test_a_step_is_a_task_of_its_role(step: str) -> None:
    role, _, name = step.partition(": ")
    files = (ROLES / role / "tasks").glob("*.yml")
    assert name in {task.get("name") for file in files for task in yaml.safe_load(file.read_text())}


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("action", Action)
def test_every_item_has_a_step_of_its_role(role: Role, action: Action) -> None:
    assert step_of(item("anything", role=role, action=action)).startswith(f"{role}: ")


@pytest.mark.parametrize(
    ("action", "module"),
    [
        *((each, "grapnel.node.engine_packages") for each in (Action.INSTALL, Action.UPGRADE, Action.DOWNGRADE)),
        *((each, "grapnel.node.engine_packages") for each in (Action.HOLD, Action.UNHOLD, Action.STAGE)),
        *((each, "grapnel.node.selinux") for each in (Action.LOAD, Action.SET)),
    ],
)
def test_what_is_done_to_an_engine_is_counted_by_the_task_that_does_it(action: Action, module: str) -> None:
    """A run that fails after the configuration has not taken a module into the policy."""
    name = step_of(item("anything", role=Role.RUNTIME, action=action)).removeprefix("runtime: ")
    tasks = [task for file in (ROLES / "runtime/tasks").glob("*.yml") for task in yaml.safe_load(file.read_text())]
    assert [module in task for task in tasks if task.get("name") == name] == [True]
