#!/usr/bin/python3
"""Divides a node's GPUs by MIG as its layout has it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: mig
short_description: Divide a node's GPUs by MIG as declared
version_added: 0.1.0
description:
  - Has C(grapnel-node) bring the GPUs to the layout in C(/etc/grapnel/mig-layout.json). What is right already stays.
  - A GPU, or an instance of it, that somebody uses is never taken away. That is a failure that names who uses it.
author:
  - The grapnel authors (@grapnel)
options:
  timeout_s:
    description: Longest time in seconds that the driver may take.
    type: int
    default: 300
attributes:
  check_mode:
    description: Tells what would be done.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Divide the GPUs
  grapnel.node.mig:
"""

RETURN = r"""
steps:
  description: What was done to which GPU, one line each.
  returned: success
  type: list
  elements: str
notes:
  description: What was noticed meanwhile, such as a device node that could not be made.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.daemon.mig import MigError, divide
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


def main() -> None:
    module = AnsibleModule(argument_spec={"timeout_s": {"type": "int", "default": 300}}, supports_check_mode=True)
    verb = "plan" if module.check_mode else "apply"
    try:
        done = divide(Host(), verb, module.params["timeout_s"])
    except (OSError, MigError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(done.steps), steps=done.steps, notes=done.notes)


if __name__ == "__main__":
    main()
