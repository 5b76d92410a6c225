#!/usr/bin/python3
"""Hands package files and built modules over to a node."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: handover
short_description: Hand package files and built kernel modules over to a node, for its driver or its engine
version_added: 0.1.0
description:
  - Sends files of a bundle, or modules that another node has built, to C(/var/lib/grapnel/driver/incoming), as far as
    the node lacks them. They are checked by their digests there, and count once their list is written, which is last.
    M(grapnel.node.driver) stages from them. Packages of an engine go to C(/var/lib/grapnel/engine-packages), from where
    M(grapnel.node.engine_packages) installs them.
author:
  - The grapnel authors (@grapnel)
options:
  part:
    description: What the files are for.
    type: str
    choices: [driver, engine]
    default: driver
  id:
    description: Name of the driver change, or of what is handed over for an engine.
    type: str
    required: true
  files:
    description:
      - The files, each with its path C(source) on the controller, its C(place) and its C(sha256).
      - A file with C(package), the C(name) and C(version) in it, is not sent to a node that has it as new already.
    type: list
    elements: dict
    required: true
  archive:
    description: Where an archive with some of the files lies on the node. Set by the action.
    type: path
    default: ""
attributes:
  check_mode:
    description: Tells whether anything would be sent.
    support: full
  diff_mode:
    description: Has no diff.
    support: none
"""

EXAMPLES = r"""
- name: Hand over what another node has built
  grapnel.node.handover:
    id: "{{ driver_change_id }}"
    files: "{{ grapnel_handover }}"
"""

RETURN = r"""
missing:
  description: Places of files that the node did not have.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.folder import INCOMING
from ansible_collections.grapnel.node.plugins.module_utils.driver.stage.work import PackageSystem
from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.handover import (
    HandoverError,
    StoreError,
    find_missing,
    find_needed,
    finish,
    take_files,
)
from ansible_collections.grapnel.node.plugins.module_utils.engines.staged import HANDED
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.choose import find_manager
from ansible_collections.grapnel.node.plugins.module_utils.packages.seam import PackageError
from ansible_collections.grapnel.node.plugins.module_utils.packages.sources import find_source

_ROOTS = {"driver": INCOMING, "engine": HANDED}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "part": {"type": "str", "choices": list(_ROOTS), "default": "driver"},
            "id": {"type": "str", "required": True},
            "files": {"type": "list", "elements": "dict", "required": True},
            "archive": {"type": "path", "default": ""},
        },
        supports_check_mode=True,
    )
    host, identifier, archive = Host(), module.params["id"], module.params["archive"]
    root = _ROOTS[module.params["part"]]
    files = {str(one.get("place")): str(one.get("sha256")) for one in module.params["files"]}
    packages = {
        str(one["place"]): (str(one["package"]["name"]), str(one["package"]["version"]))
        for one in module.params["files"]
        if one.get("package")
    }
    try:
        if archive:
            take_files(host, identifier, files, archive, root)
            module.exit_json(changed=True, missing=[])
        manager = find_manager(host)
        needed = find_needed(host, PackageSystem(manager, find_source(manager.name)), files, packages)
        missing = find_missing(host, identifier, needed, root)
        changed = bool(missing)
        if not missing and not module.check_mode:
            changed = finish(host, identifier, needed, root)
    except (HandoverError, PackageError, StoreError, OSError) as error:
        module.fail_json(msg=f"the bundle's files cannot be handed over: {error}")
    module.exit_json(changed=changed, missing=missing)


if __name__ == "__main__":
    main()
