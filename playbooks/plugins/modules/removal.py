#!/usr/bin/python3
"""Takes parts of grapnel away from a node, and gives back what was there before."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: removal
short_description: Take grapnel away, and give back what was there before it
version_added: 0.1.0
description:
  - Gives the files that grapnel has changed back as they were, from the record that it keeps of them
    (docs/contracts/originals), together with what came since. Where somebody has edited a file, only grapnel's part is
    taken out of it. Services that read these files are restarted, and have to answer.
  - Takes away grapnel's programs, units and state, and the packages of an engine that it has installed.
  - The driver is taken away by M(grapnel.node.driver).
  - What cannot be given back is in C(notes). With a line in C(problems) nothing is begun.
author:
  - The grapnel authors (@grapnel)
options:
  parts:
    description: What is taken away.
    type: list
    elements: str
    required: true
    choices: [daemon, runtime, hook, node]
attributes:
  check_mode:
    description: Tells what would be done.
    support: full
  diff_mode:
    description: Shows every file that changes; for one that not everybody may read, only that it changes.
    support: full
"""

EXAMPLES = r"""
- name: Take the node daemon away
  grapnel.node.removal:
    parts: [daemon]
"""

RETURN = r"""
removal:
  description: Steps with part, action, target and reason; notes; problems (docs/contracts/removal).
  returned: always
  type: dict
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.files.configuration import ConfigurationError
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileSetError, describe
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Clock, Host
from ansible_collections.grapnel.node.plugins.module_utils.removal.carry_out import carry_out
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import OriginalsError
from ansible_collections.grapnel.node.plugins.module_utils.removal.packages import RemovalError
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import PARTS
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import document, find_removal

_ERRORS = (OSError, ConfigurationError, FileSetError, OriginalsError, RemovalError)


def main() -> None:
    module = AnsibleModule(
        argument_spec={"parts": {"type": "list", "elements": "str", "required": True, "choices": list(PARTS)}},
        supports_check_mode=True,
    )
    host, parts = Host(), frozenset(module.params["parts"])
    told: dict[str, Any] = {"steps": [], "notes": [], "problems": []}
    try:
        removal = find_removal(host, parts)
        told = document(removal)
        if removal.problems and not module.check_mode:
            module.fail_json(msg=f"nothing was changed: {'; '.join(removal.problems)}", removal=told)
        if not module.check_mode:
            carry_out(host, removal, parts, Clock())
    except _ERRORS as error:
        module.fail_json(msg=str(error), removal=told)
    changes = [one.change for _, one in removal.files if one.change is not None]
    module.exit_json(changed=bool(removal.steps), removal=told, diff=describe(changes))


if __name__ == "__main__":
    main()
