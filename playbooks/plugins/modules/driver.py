#!/usr/bin/python3
"""Stages, swaps, gives back or removes the GPU driver of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: driver
short_description: Stage a driver change, carry it out, go back from it, or remove the driver
version_added: 0.1.0
description:
  - Calls C(grapnel-driver) on the node, which M(grapnel.node.installation) installs, and returns what it says.
  - O(verb=stage) downloads and builds, and disturbs nothing.
  - O(verb=collect) does it for other machines, into C(/var/lib/grapnel/driver/collected).
  - O(verb=swap), O(verb=back) and O(verb=remove) run in the unit C(grapnel-driver.service) of the node, and the module
    waits for its end. If the connection is lost, the unit goes on, and the same task watches it when it is run again.
  - O(verb=remove) also removes the package sources and everything that grapnel keeps for driver changes,
    C(grapnel-driver) last. A node that has nothing of it is left alone.
  - A swap that fails goes back by itself. The task fails then, with the reason, and says which driver the node has.
  - O(verb=wait) waits until no run is at work, whoever has begun it, and changes nothing. What became of the run is
    among the facts then.
  - A run that cannot go on without a reboot, and is allowed one, ends with the reason for it in C(reboot). After
    M(grapnel.node.reboot) the same task goes on.
author:
  - The grapnel authors (@grapnel)
options:
  verb:
    description: What is done.
    type: str
    required: true
    choices: [stage, collect, swap, back, remove, status, wait]
  change:
    description: The driver change (docs/contracts/driver-change), for O(verb=stage), O(verb=collect) and O(verb=swap).
    type: dict
  undone:
    description:
      - Name of the change that O(verb=back) is to lead away from. A node that has gone back from it already is left as
        it is. Without it, a node goes back from whatever it has.
    type: str
    default: ""
  offline:
    description: Whether O(verb=stage) downloads nothing, and takes everything from what was handed over.
    type: bool
    default: false
  tools:
    description: Whether O(verb=stage) and O(verb=collect) may install what modules are built with.
    type: bool
    default: true
  modules:
    description: Whether O(verb=collect) builds modules, or collects packages alone.
    type: bool
    default: true
  timeout_s:
    description: How long in seconds the module waits. A run goes on when time is up.
    type: int
    default: 7200
attributes:
  check_mode:
    description:
      - Tells what would be changed, and what is in the way of a swap, a way back or a removal. O(verb=status) and
        O(verb=wait) never change anything.
    support: full
  diff_mode:
    description:
      - Shows the packages and the kernel module; of O(verb=stage), those that are kept ready. Of O(verb=back) and
        O(verb=remove), in check mode, everything that is done.
    support: full
"""

EXAMPLES = r"""
- name: Prepare the driver while the node is in use
  grapnel.node.driver:
    verb: stage
    change: "{{ driver_change }}"

- name: Exchange the driver
  grapnel.node.driver:
    verb: swap
    change: "{{ driver_change }}"
"""

RETURN = r"""
id:
  description: Name of the change; empty without one.
  returned: always
  type: str
status:
  description: What C(grapnel-driver status) prints (docs/contracts/driver-run).
  returned: success
  type: dict
staged:
  description: What became of O(verb=stage) or O(verb=collect); empty for other verbs.
  returned: success
  type: dict
reboot:
  description: Why the node has to reboot before the run can go on; empty when it need not.
  returned: success
  type: str
foreseen:
  description:
    - What O(verb=back) or O(verb=remove) would do, in check mode. Steps with part, action, target and reason; notes;
      problems (docs/contracts/removal).
  returned: in check mode
  type: dict
problems:
  description: What is in the way, one line each; in check mode.
  returned: success
  type: list
  elements: str
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.driver import installed as program
from ansible_collections.grapnel.node.plugins.module_utils.driver.change import (
    ChangeError,
    DriverChange,
    change_id,
    parse_change,
)
from ansible_collections.grapnel.node.plugins.module_utils.driver.judge.foresee import Foreseen, foresee
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.run import change_to_undo, is_managed
from ansible_collections.grapnel.node.plugins.module_utils.driver.record.store import is_complete
from ansible_collections.grapnel.node.plugins.module_utils.driver.removal import remove_leftovers
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.steps import Node
from ansible_collections.grapnel.node.plugins.module_utils.driver.swap.unit import wait_for_unit
from ansible_collections.grapnel.node.plugins.module_utils.kernel.modprobe import loaded_version
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError

_PREPARES = ("stage", "collect")
_OF_CHANGES = (*_PREPARES, "swap")
_LEAD_BACK = ("back", "remove")
_LOOKS = ("status", "wait")
_VERBS = [*_OF_CHANGES, *_LEAD_BACK, *_LOOKS]
_NO_PROGRAM = f"this node has no grapnel-driver ({program.LAUNCHER}): site.yml installs it"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "verb": {"type": "str", "required": True, "choices": _VERBS},
            "change": {"type": "dict"},
            "undone": {"type": "str", "default": ""},
            "offline": {"type": "bool", "default": False},
            "tools": {"type": "bool", "default": True},
            "modules": {"type": "bool", "default": True},
            "timeout_s": {"type": "int", "default": 7200},
        },
        required_if=[("verb", verb, ["change"]) for verb in _OF_CHANGES],
        supports_check_mode=True,
    )
    host, identifier = Host(), ""
    try:
        change = _change(module)
        identifier = change_id(change) if change else ""
        if module.check_mode and module.params["verb"] not in _LOOKS:
            _foresee(module, host, change, identifier)
        if module.params["verb"] == "wait":
            _wait(module, host)
        if not program.is_installed(host):
            if not is_managed(host):
                _without_program(module, host)
            module.fail_json(msg=_NO_PROGRAM, id="")
        _call(module, host, change, identifier)
    except ChangeError as error:
        module.fail_json(msg=f"the driver change is malformed: {error}", id=identifier)
    except (OSError, PackageError, program.ProgramError) as error:
        module.fail_json(msg=str(error), id=identifier)


def _change(module: AnsibleModule) -> DriverChange | None:
    given = module.params["change"]
    is_wanted = module.params["verb"] in _OF_CHANGES
    return parse_change(json.dumps(given, ensure_ascii=False).encode()) if is_wanted else None


def _wait(module: AnsibleModule, host: Host) -> None:
    """Wait for the program's unit, which an older program on the node has as well."""
    timeout_s = float(module.params["timeout_s"])
    if not wait_for_unit(host, timeout_s, Clock()):
        module.fail_json(msg=f"the driver of this node is still being changed after {timeout_s:g} s", id="")
    module.exit_json(changed=False, id="", status={}, staged={}, problems=[], reboot="")


def _call(module: AnsibleModule, host: Host, change: DriverChange | None, identifier: str) -> None:
    verb, timeout_s = module.params["verb"], float(module.params["timeout_s"])
    answer = {"id": identifier, "staged": {}, "problems": [], "reboot": ""}
    if verb in _PREPARES and change is not None:
        words = [
            *(["--offline"] if module.params["offline"] and verb == "stage" else []),
            *(["--no-modules"] if not module.params["modules"] and verb == "collect" else []),
            *([] if module.params["tools"] else ["--no-tools"]),
        ]
        staged = program.stage(program.call_program, verb, change, words, timeout_s)
        findings = [one for one in staged.get("findings", []) if one.get("severity") == "error"]
        if not staged.get("complete"):
            said = "; ".join(f"{one.get('message')} ({one.get('remedy')})" for one in findings)
            what = "staged" if verb == "stage" else "collected"
            module.fail_json(msg=f"the driver cannot be {what}: {said}", **{**answer, "staged": staged})
        changed = bool(staged.get("changed"))
        diff = program.describe_staging(change) if changed else {}
        module.exit_json(changed=changed, status={}, diff=diff, **{**answer, "staged": staged})
    if verb == "status":
        module.exit_json(changed=False, status=program.read_status(program.call_program), **answer)
    if verb == "remove" and not is_managed(host):
        removed = remove_leftovers(host)
        module.exit_json(changed=bool(removed), status={}, diff=_removal(removed), **answer)
    if verb == "back" and module.params["undone"]:
        _leave_if_back(module, host, answer)
    diff = _diff(host, change)
    status = program.carry_out(program.call_program, verb, identifier, timeout_s)
    run = status.get("run") or {}
    if run.get("state") == "needs-reboot":
        module.exit_json(changed=True, status=status, **{**answer, "reboot": str(run.get("reboot"))})
    if not program.is_done(verb, status):
        module.fail_json(msg=program.reason_of(status), status=status, changed=bool(run.get("changed")), **answer)
    changed = bool(run.get("changed"))
    if verb == "remove":
        diff = _removal(remove_leftovers(host))
        changed = True
    module.exit_json(changed=changed, status=status, diff=diff if changed else {}, **answer)


def _leave_if_back(module: AnsibleModule, host: Host, answer: dict[str, Any]) -> None:
    """End here where the node has gone back already: who was to hear of it may have been ended, and begins again."""
    timeout_s = float(module.params["timeout_s"])
    if not wait_for_unit(host, timeout_s, Clock()):
        module.fail_json(msg=f"the driver of this node is still being changed after {timeout_s:g} s", **answer)
    if change_to_undo(host) != module.params["undone"]:
        module.exit_json(changed=False, status=program.read_status(program.call_program), diff={}, **answer)


def _foresee(module: AnsibleModule, host: Host, change: DriverChange | None, identifier: str) -> None:
    """Tell what would be done: on a node that has nothing of it yet, by the document alone."""
    status = program.read_status(program.call_program) if program.is_installed(host) else {}
    answer = {"id": identifier, "staged": {}, "status": status, "reboot": ""}
    if module.params["verb"] in _PREPARES and change is not None:
        changed = module.params["verb"] == "collect" or not is_complete(host, identifier)
        diff = program.describe_staging(change) if changed else {}
        module.exit_json(changed=changed, problems=[], diff=diff, **answer)
    if module.params["verb"] in _LEAD_BACK:
        found = foresee(host, module.params["verb"], lambda: Node(host, find_manager(host)))
        if found.effects and is_managed(host) and not program.is_installed(host):
            found = Foreseen(problems=(_NO_PROGRAM,))
        lines = [f"{one.action} {one.target}" for one in found.effects]
        told = {"foreseen": found.document(), "problems": list(found.problems)}
        module.exit_json(changed=bool(lines), diff=_removal(lines), **told, **answer)
    is_staged = bool(status) and bool(identifier) and is_complete(host, identifier)
    problems = program.check(program.call_program, identifier) if is_staged else []
    diff = _diff(host, change)
    changed = diff["before"] != diff["after"]
    module.exit_json(changed=changed, problems=problems, diff=diff if changed else {}, **answer)


def _without_program(module: AnsibleModule, host: Host) -> None:
    """Finish a removal that was cut short after the program went, or that has nothing to do."""
    if module.params["verb"] == "remove":
        removed = remove_leftovers(host)
        answer = {"id": "", "status": {}, "staged": {}, "problems": [], "reboot": ""}
        module.exit_json(changed=bool(removed), diff=_removal(removed), **answer)


def _removal(lines: list[str]) -> dict[str, str]:
    """Return a diff of what is done, or was removed from the node besides packages."""
    return {"before": "".join(f"{line}\n" for line in lines), "after": ""} if lines else {}


def _diff(host: Host, change: DriverChange | None) -> dict[str, str]:
    if change is None:
        return {}
    installed = find_manager(host).installed(host, {*change.names, *change.remove})
    return program.describe_difference(change, installed, loaded_version(host, "nvidia") or "")


if __name__ == "__main__":
    main()
