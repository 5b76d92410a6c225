#!/usr/bin/python3
"""Documentation of the action `declaration`, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: declaration
short_description: Read the declaration and merge the levels of the inventory
version_added: 0.1.0
description:
  - Merges the levels default, file, groups (in Ansible's order) and host key by key. Groups and hosts declare in
    the inventory variable C(grapnel_stack). Extra variables are not a level.
  - Fails with a list of everything that is wrong, in the file and in all levels.
author:
  - The grapnel authors (@grapnel)
options:
  file:
    description: The declaration, empty when the inventory declares everything.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: Read the declaration
  grapnel.node.declaration:
    file: grapnel.yaml
  run_once: true
  register: declaration
"""

RETURN = r"""
stacks:
  description: The effective declaration by node.
  returned: success
  type: dict
file:
  description: The declaration file.
  returned: success
  type: str
"""
