#!/usr/bin/python3
"""Documentation of the action `plan`, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: plan
short_description: Plan what brings a node to its declaration
version_added: 0.1.0
description:
  - Computes the node plan on the controller, with the Python package C(provision) of grapnel.
  - Fails with all problems of the plan and their hints. The plan is returned to be registered; it is not set as a fact.
author:
  - The grapnel authors (@grapnel)
options:
  facts:
    description: What M(grapnel.node.facts) returned.
    type: dict
    required: true
  stack:
    description: The node's effective declaration, from M(grapnel.node.declaration).
    type: dict
    required: true
  version:
    description: Where a branch is declared, C(version) and C(reason) from M(grapnel.node.driver_versions).
    type: dict
    default: {}
  version_problem:
    description: Why M(grapnel.node.driver_versions) could choose none; the plan fails with it.
    type: str
    default: ""
  payload:
    description: Folder of the payload, empty for the default places.
    type: str
    default: ""
  stack_file:
    description: The declaration file; the payload is also looked for beside it.
    type: str
    default: ""
  roles:
    description: The roles that may change something, empty for all of them.
    type: list
    elements: str
    choices: [driver, runtime, tuning, kubelet, node_daemon]
    default: []
  force:
    description:
      - Whether files that grapnel wrote into an engine's configuration are overwritten where somebody edited them.
        What was edited is kept beside.
    type: bool
    default: false
"""

EXAMPLES = r"""
- name: Plan
  grapnel.node.plan:
    facts: "{{ node.facts }}"
    stack: "{{ declaration.stacks[inventory_hostname] }}"
  register: planned
"""

RETURN = r"""
plan:
  description: The plan, in the form of docs/contracts/node-plan.
  returned: success
  type: dict
"""
