#!/usr/bin/python3
"""Documentation of the action `guard`, which runs on the controller and runs the named module on the node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: guard
short_description: Run a module and pass on of its answer only what is checked
version_added: 0.1.0
description:
  - Ansible takes orders from some keys of a module's answer, and a deep or endless answer ends the run of every host.
    A host that somebody else is root on answers what it likes. This runs a module that does not check by itself, such
    as one of C(ansible.builtin).
  - Of the answer only C(changed), C(failed), C(skipped), C(msg), C(rc), C(stdout), C(stderr) and C(diff) go on, each of
    its type and within limits. Facts, statistics and other orders to Ansible are a failure of that host.
author:
  - The grapnel authors (@grapnel)
options:
  module:
    description: The module, by its full name; one without an action of its own, or C(ansible.builtin.command).
    type: str
    required: true
  args:
    description: Its options.
    type: dict
    default: {}
attributes:
  check_mode:
    description: As the module has it.
    support: full
  diff_mode:
    description: As the module has it.
    support: full
"""

EXAMPLES = r"""
- name: Install a package
  grapnel.node.guard:
    module: ansible.builtin.apt
    args:
      name: containerd
"""

RETURN = r"""
rc:
  description: Exit status, where the module runs a command.
  returned: as the module returns it
  type: int
stdout:
  description: The end of what the command printed, up to 64 KiB; likewise stderr.
  returned: as the module returns it
  type: str
"""
