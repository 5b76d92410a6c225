#!/usr/bin/python3
"""Fetches what a node has collected of a driver for others."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: collected
short_description: Fetch what a node has collected of a driver for other nodes
version_added: 0.1.0
description:
  - Fetches the archive that M(grapnel.node.driver) with C(verb=collect) has made, and removes it from the node.
  - The archive is what the node says. Whoever reads it checks it.
author:
  - The grapnel authors (@grapnel)
options:
  id:
    description: Name of the driver change.
    type: str
    required: true
  target:
    description: Where the archive goes on the controller.
    type: path
    required: true
  owner:
    description: The user that fetches it, by number; negative to remove what was collected. Set by the action.
    type: int
    default: -1
attributes:
  check_mode:
    description: Nothing is fetched.
    support: full
  diff_mode:
    description: Has no diff.
    support: none
"""

EXAMPLES = r"""
- name: Fetch the collected driver
  grapnel.node.collected:
    id: 298ef9376dac
    target: /srv/bundles/298ef9376dac.tar
"""

RETURN = r"""
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.collected import (
    CollectedError,
    hand_out,
    take_back,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "id": {"type": "str", "required": True},
            "target": {"type": "path", "required": True},
            "owner": {"type": "int", "default": -1},
        },
        supports_check_mode=True,
    )
    if module.check_mode:
        module.exit_json(changed=True)
    host, owner = Host(), module.params["owner"]
    try:
        if owner < 0:
            module.exit_json(changed=take_back(host))
        hand_out(host, module.params["id"], owner)
    except (CollectedError, OSError) as error:
        module.fail_json(msg=f"what was collected cannot be fetched: {error}")
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
