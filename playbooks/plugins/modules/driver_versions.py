#!/usr/bin/python3
"""Documentation of the action `driver_versions`, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: driver_versions
short_description: Choose the versions that declared driver branches stand for
version_added: 0.1.0
description:
  - Chooses one version for all hosts with the same declaration, the newest of the branch that each of them can have,
    with the Python package C(provision) of grapnel.
  - Reads what was registered for all hosts of the play, so run it once for all of them. A host that was given a version
    before keeps it, and others with the same declaration get the same.
author:
  - The grapnel authors (@grapnel)
options:
  stacks:
    description: The hosts' effective declarations, from M(grapnel.node.declaration).
    type: dict
    required: true
  facts:
    description: Name of the variable that M(grapnel.node.facts) was registered in.
    type: str
    required: true
  chosen:
    description: Name of the variable that the result of this module is registered in.
    type: str
    required: true
"""

EXAMPLES = r"""
- name: Choose the versions of declared branches
  grapnel.node.driver_versions:
    stacks: "{{ declaration.stacks }}"
    facts: node
    chosen: versions
  run_once: true
  register: versions
"""

RETURN = r"""
versions:
  description: For each host that declares a branch and knows its package source, C(version) and C(reason).
  returned: success
  type: dict
problems:
  description: For each host that no version could be chosen for, the reason.
  returned: success
  type: dict
"""
