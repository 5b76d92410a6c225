#!/usr/bin/python3
"""Gets a kernel module that a node has built, for other nodes of its kind."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: built_module
short_description: Get the kernel modules that a node has built for a driver, for other nodes of its kind
version_added: 0.1.0
description:
  - Copies the archive that M(grapnel.node.driver) has staged on the node to the controller, in pieces, and checks its
    size and digest. Nothing is changed on the node.
  - What is in the archive is what the node says. With O(keep_as) that is checked too, by the Python package
    C(provision) of grapnel; otherwise whoever hands it to other nodes has to do that first.
author:
  - The grapnel authors (@grapnel)
options:
  kernel:
    description: Release of the kernel that the modules are for.
    type: str
    required: true
  dkms:
    description: Name of the module in DKMS.
    type: str
    required: true
  version:
    description: Version of the driver.
    type: str
    required: true
  flavour:
    description: Flavour of the modules.
    type: str
    required: true
    choices: [open, proprietary]
  destination:
    description: File on the controller, which must not be there yet. Used by the action.
    type: path
    default: ""
  keep_as:
    description:
      - A build of M(grapnel.node.module_builders). The modules are kept as that in the controller's cache, to be handed
        to others, and the four options above are taken from it. Used by the action.
    type: dict
    default: {}
  machine:
    description: What tells the node's machine from others, from M(grapnel.node.module_builders). Used by the action.
    type: list
    elements: str
    default: []
  limit_bytes:
    description: Size that the archive may have. Used by the action.
    type: int
    default: 268435456
  offset:
    description: Where the piece begins, -1 for the description of the archive alone. Set by the action.
    type: int
    default: -1
attributes:
  check_mode:
    description: Changes nothing on the node; nothing is copied.
    support: full
  diff_mode:
    description: Has no diff.
    support: none
"""

EXAMPLES = r"""
- name: Get the modules that this node has built
  grapnel.node.built_module:
    kernel: 6.12.117+deb13-amd64
    dkms: nvidia-current
    version: 550.163.01
    flavour: proprietary
    destination: /var/cache/modules/6.12.117+deb13-amd64.tar.gz
"""

RETURN = r"""
size_bytes:
  description: Size of the archive.
  returned: success
  type: int
sha256:
  description: Digest of the archive.
  returned: success
  type: str
"""

import base64

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.built_module import (
    BuiltModuleError,
    StoreError,
    Wanted,
    describe_archive,
    find_archive,
    read_piece,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "kernel": {"type": "str", "required": True},
            "dkms": {"type": "str", "required": True},
            "version": {"type": "str", "required": True},
            "flavour": {"type": "str", "required": True, "choices": ["open", "proprietary"]},
            "destination": {"type": "path", "default": ""},
            "keep_as": {"type": "dict", "default": {}},
            "machine": {"type": "list", "elements": "str", "default": []},
            "limit_bytes": {"type": "int", "default": 268_435_456},
            "offset": {"type": "int", "default": -1},
        },
        supports_check_mode=True,
    )
    host, given = Host(), module.params
    try:
        path = find_archive(host, Wanted(given["kernel"], given["dkms"], given["version"], given["flavour"]))
        if given["offset"] < 0:
            size, digest = describe_archive(host, path)
            module.exit_json(changed=False, size_bytes=size, sha256=digest)
        piece = read_piece(host, path, given["offset"])
    except (BuiltModuleError, StoreError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, piece=base64.b64encode(piece).decode("ascii"))


if __name__ == "__main__":
    main()
