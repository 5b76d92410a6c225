"""Sends an archive of the payload to a node and installs it there.

Only an archive of a payload is ever sent: what its folder's manifest names, with the digest that it states. A path
alone, wherever it came from, gives a node no file of the controller.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction
from ansible_collections.grapnel.node.plugins.plugin_utils.controller import require_grapnel

_ARGUMENTS = {
    "part": {"type": "str", "required": True, "choices": ["driver", "hook", "node"]},
    "digest": {"type": "str", "required": True},
    "archive": {"type": "path", "required": True},
    "python": {"type": "str", "default": "/usr/bin/python3"},
    "unit": {"type": "str", "default": ""},
    "units": {"type": "list", "elements": "str", "default": []},
}


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"previous": str}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Check the archive, and run the module with what is in it."""
        _, arguments = self.validate_argument_spec(_ARGUMENTS)
        require_grapnel()
        archive = _require_archive(Path(arguments["archive"]), arguments["part"], arguments["digest"])
        if not self._task.check_mode:
            # With the module, which is piped to the node: a file of its own takes five more sessions.
            arguments["content"] = base64.b64encode(zlib.compress(archive)).decode()
        return self.execute(self._task.action, arguments, task_vars)


def _require_archive(path: Path, part: str, digest: str) -> bytes:
    """Return what is in an archive; raises AnsibleActionFail when it is not one of a payload."""
    from provision.base.errors import GrapnelError
    from provision.planning.supply.payload.store import load_payload

    try:
        payload = load_payload(path.parent)
    except GrapnelError as error:
        raise AnsibleActionFail(f"{path} is not an archive of a payload: {error}") from None
    parts = {"hook": [payload.hook], "driver": [payload.driver], "node": [payload.node]}
    if not any(Path(one.path) == path.absolute() and one.digest == digest for one in parts[part]):
        raise AnsibleActionFail(f"the payload in {path.parent} has no {part} {digest[:12]} named {path.name}")
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != digest:
        raise AnsibleActionFail(f"{path} has the digest {found[:12]}, not {digest[:12]}: build the payload again")
    return content
