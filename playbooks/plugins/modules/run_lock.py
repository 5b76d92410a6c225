#!/usr/bin/python3
"""Keeps a second run off a node while one changes it."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: run_lock
short_description: Keep other runs from changing a node at the same time
version_added: 0.1.0
description:
  - A run takes the lock before it changes anything, and gives it back at its end. A second one fails, and is told who
    changes the node and since when. It is the same for runs from other machines.
  - Playbooks of one C(grapnel) command are one run. Each gives the lock back, and may keep it for the next one.
  - A run that was killed on the same machine is noticed. The lock of any other one ends after O(limit_s), or with a
    reboot of the node. Whoever reboots a node takes it again afterwards.
author:
  - The grapnel authors (@grapnel)
options:
  state:
    description: Whether the run is to have the lock.
    type: str
    choices: [taken, free]
    required: true
  limit_s:
    description: For how many seconds it counts without a sign of its owner. To be longer than what is done meanwhile.
    type: int
    default: 1800
  keep_s:
    description: For how many seconds O(state=free) leaves it to the next playbook of the run; at once where it is 0.
    type: int
    default: 0
  owner:
    description: The run. Set by the action.
    type: str
    default: ""
  holder:
    description: Who that is, for messages. Set by the action.
    type: str
    default: ""
  process:
    description: The playbook. Set by the action.
    type: str
    default: ""
  dead:
    description: A run that does not go on any more. Set by the action.
    type: str
    default: ""
attributes:
  check_mode:
    description: Takes nothing.
    support: full
  diff_mode:
    description: Has no diff.
    support: none
"""

EXAMPLES = r"""
- name: Keep other runs off this node
  grapnel.node.run_lock:
    state: taken
"""

RETURN = r"""
held_by:
  description: The run that has the lock, empty where it is this one, or nobody's.
  returned: success
  type: str
process:
  description: The playbook of that run which was at work last.
  returned: success
  type: str
says:
  description: Who that is and since when.
  returned: success
  type: str
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.run_lock import RunLock, free, take


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["taken", "free"], "required": True},
            "limit_s": {"type": "int", "default": 1800},
            "keep_s": {"type": "int", "default": 0},
            "owner": {"type": "str", "default": ""},
            "holder": {"type": "str", "default": ""},
            "process": {"type": "str", "default": ""},
            "dead": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    given, host, found = module.params, Host(), None
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    mine = RunLock(given["owner"], given["holder"], int(time.time()), now + given["limit_s"], given["process"])
    try:
        if not module.check_mode:
            if given["state"] == "free":
                free(host, mine.owner, now + given["keep_s"] if given["keep_s"] else 0.0)
            else:
                found = take(host, mine, now, given["dead"])
    except OSError as error:
        module.fail_json(msg=f"the lock of runs on this node cannot be used: {error}")
    other = RunLock("", "", 0, 0.0, "") if found is None else found
    says = "" if found is None else found.describe(now, time.time())
    module.exit_json(changed=False, held_by=other.owner, process=other.process, says=says)


if __name__ == "__main__":
    main()
