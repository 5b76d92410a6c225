"""Sends an archive of the payload to a node and installs it there.

Only an archive of a payload is ever sent: what its folder's manifest names, with the digest that it states. A path
alone, wherever it came from, gives a node no file of the controller.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction
from ansible_collections.grapnel.node.plugins.plugin_utils.controller import require_grapnel

_ARGUMENTS = {
    "part": {"type": "str", "required": True, "choices": ["driver", "hook", "node"]},
    "digest": {"type": "str", "required": True},
    "archive": {"type": "path", "required": True},
    "unit": {"type": "str", "default": ""},
    "units": {"type": "list", "elements": "str", "default": []},
}


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"previous": str}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Check the archive, send it, and run the module on the copy, which goes with the task's temporary folder."""
        _, arguments = self.validate_argument_spec(_ARGUMENTS)
        require_grapnel()
        archive = _require_archive(Path(arguments["archive"]), arguments["part"], arguments["digest"])
        if not self._task.check_mode:
            arguments["archive"] = self._send(archive)
        return self.execute(self._task.action, arguments, task_vars)

    def _send(self, archive: Path) -> str:
        folder = self._connection._shell.tmpdir or self._make_tmp_path()  # noqa: SLF001 - as Ansible's own actions do
        there = str(self._connection._shell.join_path(folder, "archive.tar"))  # noqa: SLF001 - as above
        self._transfer_file(str(archive), there)
        self._fixup_perms2((folder, there))
        return there


def _require_archive(path: Path, part: str, digest: str) -> Path:
    """Return the archive; raises AnsibleActionFail when it is not one of a payload."""
    from provision.errors import GrapnelError  # noqa: PLC0415 - found only after `require_grapnel`
    from provision.payload.store import load_payload  # noqa: PLC0415 - see above

    try:
        payload = load_payload(path.parent)
    except GrapnelError as error:
        raise AnsibleActionFail(f"{path} is not an archive of a payload: {error}") from None
    parts = {"hook": [payload.hook], "driver": [payload.driver], "node": list(payload.node.values())}
    if not any(Path(one.path) == path.absolute() and one.digest == digest for one in parts[part]):
        raise AnsibleActionFail(f"the payload in {path.parent} has no {part} {digest[:12]} named {path.name}")
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != digest:
        raise AnsibleActionFail(f"{path} has the digest {found[:12]}, not {digest[:12]}: build the payload again")
    return path
