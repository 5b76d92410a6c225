#!/usr/bin/python3
"""Documentation of the action `module_builders`, which runs on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: module_builders
short_description: Decide which hosts build kernel modules for others
version_added: 0.1.0
description:
  - Decides who builds which kernel modules for whom, in rounds, with the Python package C(provision) of grapnel, as
    C(grapnel apply) does (docs/drivers/staging.md).
  - Stage the driver on the hosts of a round, get what they have built with M(grapnel.node.built_module), and ask again,
    until there are no C(providers) any more. A host that did not provide its modules is not asked a second time.
  - Reads what was registered for all hosts of the play, so run it once for all of them.
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
  planned:
    description: Name of the variable that M(grapnel.node.plan) was registered in.
    type: str
    required: true
  before:
    description: What this module returned for the round before; empty for the first one.
    type: dict
    default: {}
"""

EXAMPLES = r"""
- name: Decide who builds
  grapnel.node.module_builders:
    stacks: "{{ declaration.stacks }}"
    facts: node
    planned: planned
    before: "{{ builders | default({}) }}"
  run_once: true
  register: builders
"""

RETURN = r"""
providers:
  description: For each host whose turn it is, the builds that it provides.
  returned: success
  type: dict
tried:
  description: Hosts that did not provide a build.
  returned: success
  type: list
  elements: dict
handover:
  description: For each host, the files that it can be handed with M(grapnel.node.handover).
  returned: success
  type: dict
refused:
  description: For each host that cannot be handed packages of an installer file, the reason.
  returned: success
  type: dict
machines:
  description: What tells the machine of each host whose turn it is from others.
  returned: success
  type: dict
notes:
  description: Who builds for whom, one line each.
  returned: success
  type: list
  elements: str
"""
