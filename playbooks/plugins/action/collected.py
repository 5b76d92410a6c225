"""Runs the module `collected`: has the archive put where the ssh user can read it, fetches it, has it removed."""

from __future__ import annotations

import re
import resource
from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.collected import FILE
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

_MAX_BYTES = 16 * 1024**3  # a node may send without an end; the fetching program inherits the limit
_UID = re.compile(r"\A[0-9]{1,10}\s*\Z")


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Fetch from a place that the node does not choose: the path goes into commands of the connection."""
        arguments = dict(self._task.args)
        if self._task.check_mode:
            return self.execute(self._task.action, arguments, task_vars)
        given = self.execute(self._task.action, {**arguments, "owner": self._user()}, task_vars)
        if given.get("failed"):
            return given
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MAX_BYTES, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
        try:
            self._connection.fetch_file(FILE, arguments["target"])
        finally:
            self.execute(self._task.action, arguments, task_vars)
        return given

    def _user(self) -> int:
        """Return the number of the user that the connection logs in as, before it becomes another one."""
        said = str(self._low_level_execute_command("id -u", sudoable=False).get("stdout", ""))
        if not _UID.match(said):
            raise AnsibleActionFail("the node does not say which user it is reached as (`id -u`)")
        return int(said)
