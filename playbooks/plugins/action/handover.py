"""Runs the module `handover`: sends the files that the node lacks, some at a time, and has the list written last."""

from __future__ import annotations

import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ansible.errors import AnsibleActionFail

from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# A round trip for each file takes longer than the file; a broken connection costs no more than what is sent at once.
_BATCH_BYTES = 64 * 1024 * 1024


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"missing": list}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Ask what is missing and send it; a node that says so of other files is sent none."""
        arguments = dict(self._task.args)
        sources = {str(one["place"]): Path(str(one["source"])) for one in arguments["files"]}
        answer = self.execute(self._task.action, arguments, task_vars)
        missing = [place for place in sources if place in (answer.get("missing") or [])]
        if not missing or self._task.check_mode:
            return answer
        for batch in _batches({place: sources[place] for place in missing}):
            done = self.execute(self._task.action, {**arguments, "archive": self._send(batch)}, task_vars)
            if done.get("failed"):
                return done
        last = self.execute(self._task.action, arguments, task_vars)
        if last.get("missing"):
            raise AnsibleActionFail(f"{len(last['missing'])} files are gone again from the node, after they were sent")
        return {**last, "changed": True, "missing": missing}

    def _send(self, batch: Sequence[tuple[str, Path]]) -> str:
        folder = self._connection._shell.tmpdir or self._make_tmp_path()  # noqa: SLF001 - as Ansible's own actions do
        there = str(self._connection._shell.join_path(folder, "files"))  # noqa: SLF001 - as above
        with tempfile.NamedTemporaryFile(prefix="grapnel-handover-") as archive:
            with tarfile.open(fileobj=archive, mode="w") as tar:
                for place, source in batch:
                    tar.add(source, arcname=place, recursive=False)
            archive.flush()
            self._transfer_file(archive.name, there)
        self._fixup_perms2((folder, there))
        return there


def _batches(sources: dict[str, Path]) -> Iterator[list[tuple[str, Path]]]:
    batch: list[tuple[str, Path]] = []
    size = 0
    for place, source in sources.items():
        size += source.stat().st_size
        if batch and size > _BATCH_BYTES:
            yield batch
            batch, size = [], source.stat().st_size
        batch.append((place, source))
    if batch:
        yield batch
