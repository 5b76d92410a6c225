"""Runs the module `handover`: sends the files that the node lacks one by one, and has the list written last."""

from __future__ import annotations

from typing import Any, ClassVar

from ansible.errors import AnsibleActionFail

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"missing": list}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Ask what is missing and send it; a node that says so of other files is sent none."""
        arguments = dict(self._task.args)
        sources = {str(one["place"]): str(one["source"]) for one in arguments["files"]}
        answer = self.execute(self._task.action, arguments, task_vars)
        missing = [place for place in sources if place in (answer.get("missing") or [])]
        if not missing or self._task.check_mode:
            return answer
        for place in missing:
            sent = {**arguments, "place": place, "file": self._send(sources[place])}
            done = self.execute(self._task.action, sent, task_vars)
            if done.get("failed"):
                return done
        last = self.execute(self._task.action, arguments, task_vars)
        if last.get("missing"):
            raise AnsibleActionFail(f"{len(last['missing'])} files are gone again from the node, after they were sent")
        return {**last, "changed": True, "missing": missing}

    def _send(self, source: str) -> str:
        folder = self._connection._shell.tmpdir or self._make_tmp_path()  # noqa: SLF001 - as Ansible's own actions do
        there = str(self._connection._shell.join_path(folder, "file"))  # noqa: SLF001 - as above
        self._transfer_file(source, there)
        self._fixup_perms2((folder, there))
        return there
