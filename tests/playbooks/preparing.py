"""Runs the tasks of ``site.yml`` that stage a driver, with given plans in the place of what `plan` would say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from provision.planning.driver_change import change_id
from provision.planning.node_plan import DriverVariables, NodePlan, Roles
from tests.ansible_modules import shared_modules

if TYPE_CHECKING:
    from provision.planning.driver_change import DriverChange

ROOT = Path(__file__).parents[2]
# In the place of tasks/plan.yml.
PLAN = """\
- name: Gather facts
  grapnel.node.facts:
  register: grapnel_facts

- name: Plan
  ansible.builtin.set_fact:
    grapnel_planned:
      plan: "{{ (plan_staged if is_staged else plan_unstaged) | combine({'node': inventory_hostname}) }}"
  vars:
    staged: "{{ grapnel_facts.facts.driver.staged | selectattr('complete') | map(attribute='id') }}"
    is_staged: "{{ plan_unstaged.roles.driver.driver_change_id in staged }}"
"""
PLAY = """\
- name: Prepare the driver
  hosts: all
  serial: "{{ grapnel_serial }}"
  gather_facts: false
  vars:
    grapnel_plan: "{{ grapnel_planned.plan }}"
  tasks:
    - name: Read the declaration
      grapnel.node.declaration:
        file: grapnel.yaml
      run_once: true
      register: grapnel_declaration

    - name: Gather facts and plan
      ansible.builtin.import_tasks: tasks/plan.yml

    - name: Prepare the driver
      ansible.builtin.import_tasks: tasks/prepare.yml
"""


def prepare_driver(
    folder: Path,
    inventory: str,
    change: DriverChange,
    *,
    archive: str = "",
    digest: str = "",
    serial: str = "100%",
    builder: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run the play in a folder, and return what became of it; the controller's cache is below the folder.

    ``archive`` and ``digest`` are those of the driver program, which nodes have where they are empty; ``builder`` is
    the declared one.
    """
    driver = {"version": change.version, **({"builder": builder} if builder else {})}
    spec = {"apiVersion": "grapnel.dev/v1alpha1", "kind": "GpuStack", "spec": {"driver": driver}}
    shutil.copytree(ROOT / "playbooks/roles/grapnel/tasks", folder / "tasks")
    texts = {"tasks/plan.yml": PLAN, "play.yml": PLAY, "grapnel.yaml": json.dumps(spec), "inventory.yaml": inventory}
    for name, text in texts.items():
        (folder / name).write_text(text)
    given = json.dumps({**_plans(change, archive, digest), "grapnel_serial": serial})
    with shared_modules(folder / "cache"):
        return subprocess.run(
            [Path(sys.executable).with_name("ansible-playbook"), "-i", "inventory.yaml", "play.yml", "-e", given],
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                "XDG_CACHE_HOME": str(folder / "cache"),
                "NO_COLOR": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )


def kept_archives(folder: Path) -> list[Path]:
    """Return the archives that the controller keeps for others."""
    return sorted(folder.glob("cache/grapnel/built-modules/*/*.tar.gz"))


def _plans(change: DriverChange, archive: str, digest: str) -> dict[str, object]:
    unstaged = DriverVariables(
        driver_version=change.version,
        driver_archive=archive,
        driver_digest=digest,
        driver_change=change,
        driver_change_id=change_id(change),
        driver_stage=True,
    )
    staged = msgspec.structs.replace(unstaged, driver_stage=False, driver_swap=True)
    return {
        name: msgspec.to_builtins(NodePlan(node="", roles=Roles(driver=driver)))
        for name, driver in (("plan_unstaged", unstaged), ("plan_staged", staged))
    }
