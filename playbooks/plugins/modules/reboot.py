#!/usr/bin/python3
"""Documentation of the action `reboot`, which has the node's own program reboot it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: reboot
short_description: Reboot a node whose driver change waits for it, and wait until it is back
version_added: 0.1.0
description:
  - Runs M(ansible.builtin.reboot), with C(grapnel-driver reboot) as the command. That program refuses to reboot a node
    whose driver change does not wait for a reboot, whose GPUs are in service, or one of whose GPUs a process holds.
  - The node counts as rebooted once it answers with another boot id. What remains of the driver change is done by
    M(grapnel.node.driver) afterwards.
  - Everything else that runs on the node ends with the reboot, too.
author:
  - The grapnel authors (@grapnel)
options:
  timeout_s:
    description: How long in seconds the node may take to answer again.
    type: int
    default: 1500
attributes:
  check_mode:
    description: Reboots nothing.
    support: full
  diff_mode:
    description: There is nothing to show.
    support: none
"""

EXAMPLES = r"""
- name: Reboot a node for its driver
  grapnel.node.reboot:
  when: driver_result.reboot | length > 0
"""

RETURN = r"""
rebooted:
  description: Whether the node has rebooted.
  returned: always
  type: bool
elapsed:
  description: How long in seconds it took.
  returned: success
  type: int
"""
