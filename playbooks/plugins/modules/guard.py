#!/usr/bin/python3
"""Documentation of the action `guard`, which runs on the controller and runs the named module on the node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: guard
short_description: Run a module and pass on only the checked parts of its answer
version_added: 0.1.0
description:
  - Ansible acts on some keys of a module's answer, and a deeply nested or endless answer ends the run for every host.
    A host on which somebody else is root can answer anything. This action runs a module that does not check its answer
    itself, such as one of C(ansible.builtin).
  - Only C(changed), C(failed), C(skipped), C(msg), C(rc), C(stdout), C(stderr) and C(diff) of the answer are passed on,
    each checked for type and size. Facts, statistics and anything else that Ansible acts on fail that host.
author:
  - The grapnel authors (@grapnel)
options:
  module:
    description: The module, by its full name; one without an action of its own, or C(ansible.builtin.command).
    type: str
    required: true
  args:
    description: Options of the module.
    type: dict
    default: {}
attributes:
  check_mode:
    description: Depends on the module.
    support: full
  diff_mode:
    description: Depends on the module.
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
