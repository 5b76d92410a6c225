#!/usr/bin/python3
"""Installs a part of grapnel (hook, node daemon or driver's program) from an archive of the payload."""

from __future__ import annotations

DOCUMENTATION = r"""
---
module: installation
short_description: Install the hook, the node daemon or the driver's program
version_added: 0.1.0
description:
  - Sends an archive of the payload, unpacks it beside the installed version, and switches to it by renaming a link. A
    run that is killed at any moment leaves the installed version working.
author:
  - The grapnel authors (@grapnel)
options:
  part:
    description: What is installed.
    type: str
    required: true
    choices: [driver, hook, node]
  digest:
    description: SHA-256 of the archive, as the node plan names it.
    type: str
    required: true
  archive:
    description:
      - Tar archive on the controller. Its folder has to be a payload (docs/contracts/payload) whose manifest names it
        with this digest, and that has to be the digest of its content. No other file is sent.
    type: path
    required: true
  content:
    description: The archive itself, compressed with zlib and in base64. The action fills it in from O(archive).
    type: str
    default: ""
  python:
    description: Interpreter that starts the part's programs, as the node plan names it.
    type: str
    default: /usr/bin/python3
  unit:
    description: Service that has to restart for another version. It is marked for a restart, not restarted.
    type: str
    default: ""
  units:
    description:
      - Units of systemd that come with the part, in its folder C(systemd). They are linked, enabled and started once it
        is installed; in check mode they are left alone.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Tells whether the archive would be installed.
    support: full
  diff_mode:
    description: Shows the digests.
    support: full
"""

EXAMPLES = r"""
- name: Install the hook
  grapnel.node.installation:
    part: hook
    digest: 4f2b8c1d9a0711e3b6a4d2f80c5597ab41de86f2370a9b5c8e1d64f7023c9ab5
    archive: /home/me/site/dist/payload/hook-4f2b8c1d9a07.tar
"""

RETURN = r"""
previous:
  description: Digest of the version that was installed before, empty when there was none.
  returned: always
  type: str
"""

from typing import ClassVar

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.machine.identity import SYSTEM_PYTHON
from ansible_collections.grapnel.node.plugins.module_utils.machine.installation import (
    InstallationError,
    install_part,
    install_units,
    installed_digest,
    installed_python,
    unpacked_content,
)
from ansible_collections.grapnel.node.plugins.module_utils.machine.quiet_module import QuietModule
from ansible_collections.grapnel.node.plugins.module_utils.machine.units import mark_restart


class Module(QuietModule):
    SHOWN: ClassVar = ("part", "digest", "archive", "python", "unit", "units")


def main() -> None:
    module = Module(
        argument_spec={
            "part": {"type": "str", "required": True, "choices": ["driver", "hook", "node"]},
            "digest": {"type": "str", "required": True},
            "archive": {"type": "path", "required": True},
            "content": {"type": "str", "default": ""},
            "python": {"type": "str", "default": SYSTEM_PYTHON},
            "unit": {"type": "str", "default": ""},
            "units": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    host, part, digest, python = Host(), *(module.params[name] for name in ("part", "digest", "python"))
    previous = installed_digest(host, part) or ""
    is_new, has_units = previous != digest or installed_python(host, part) != python, False
    if not module.check_mode:
        try:
            if is_new:
                if module.params["unit"]:
                    mark_restart(host, module.params["unit"])
                with unpacked_content(module.params["content"], digest) as archive:
                    install_part(host, part, digest, archive, python)
            has_units = bool(module.params["units"]) and install_units(host, part, module.params["units"])
        except (OSError, InstallationError) as error:
            module.fail_json(msg=f"the {part} {digest[:12]} cannot be installed: {error}")
    changed = is_new or has_units
    diff = {"before": f"{part} {previous}\n", "after": f"{part} {digest}\n"}
    module.exit_json(changed=changed, previous=previous, diff=diff if is_new else {})


if __name__ == "__main__":
    main()
