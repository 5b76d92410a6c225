#!/usr/bin/python3
"""Sets a node's GPUs as its file says: modes, power limits and clocks."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: gpu_settings
short_description: Set modes, power limits and clocks of a node's GPUs as declared
version_added: 0.1.0
description:
  - Has C(grapnel-node) set the GPUs as C(/etc/grapnel/gpu-settings.json) says, and give back what it has set before and
    the file does not have any more. What is right already stays, and nobody who uses a GPU is disturbed.
  - Where no driver is loaded nothing is set. The unit of the node daemon does it before the daemon starts.
author:
  - The grapnel authors (@grapnel)
options:
  timeout_s:
    description: Longest time in seconds that the driver may take.
    type: int
    default: 120
attributes:
  check_mode:
    description: Changes nothing. What would be set is not told, as the file would be written first.
    support: partial
    details: It does not ask the GPUs.
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Set the GPUs
  grapnel.node.gpu_settings:
"""

RETURN = r"""
steps:
  description: What was set of which GPU, one line each.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.daemon.gpu_settings import GpuSettingsError, set_gpus
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


def main() -> None:
    module = AnsibleModule(argument_spec={"timeout_s": {"type": "int", "default": 120}}, supports_check_mode=True)
    try:
        steps = [] if module.check_mode else set_gpus(Host(), module.params["timeout_s"])
    except (OSError, GpuSettingsError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=bool(steps), steps=steps)


if __name__ == "__main__":
    main()
