"""Runs the module `built_module`: gets an archive piece by piece, never more of it than the limit, and checks it.

To be kept for other nodes it is looked into as well, by the code that `grapnel apply` does that with.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import re
from typing import Any, BinaryIO, ClassVar

from ansible.errors import AnsibleActionFail

from ansible_collections.grapnel.node.plugins.module_utils.driver.transfer.built_module import PIECE_BYTES
from ansible_collections.grapnel.node.plugins.plugin_utils.checked import CheckedAction
from ansible_collections.grapnel.node.plugins.plugin_utils.controller import failure, plain, require_grapnel

_DIGEST = re.compile(r"[0-9a-f]{64}")


class ActionModule(CheckedAction):
    RETURNS: ClassVar = {"size_bytes": int, "sha256": str, "piece": str}

    def ask(self, task_vars: dict[str, Any]) -> dict[str, Any]:
        """Get the archive into its destination, or keep it for other hosts."""
        arguments = {**self._task.args, "destination": "", "keep_as": {}, "machine": []}
        if self._task.args.get("keep_as"):
            return self._keep(arguments, plain(self._task.args["keep_as"]), task_vars)
        return self._get(str(self._task.args["destination"]), arguments, task_vars)

    def _keep(self, arguments: dict[str, Any], build: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Get the archive of a build, and keep the modules in it; what is anything else is refused."""
        require_grapnel()
        import msgspec

        from provision.cli.session.context import open_shelf
        from provision.planning.supply.builds.archive import MAX_BYTES
        from provision.planning.supply.builds.errors import BuildsError
        from provision.planning.supply.builds.model import ModuleBuild

        arguments |= {name: build[name] for name in ("kernel", "dkms", "version", "flavour")}
        arguments["limit_bytes"] = MAX_BYTES
        machine = [str(one) for one in plain(self._task.args.get("machine") or [])]
        shelf = open_shelf(task_vars.get("ansible_inventory_sources") or [], os.environ)
        try:
            with shelf.partial_folder() as folder:
                given = folder / "given"
                answer = self._get(str(given), arguments, task_vars)
                if given.exists():
                    shelf.keep(
                        msgspec.convert(build, ModuleBuild), str(task_vars["inventory_hostname"]), given, machine
                    )
        except BuildsError as error:
            return failure(error)
        return answer

    def _get(self, destination: str, arguments: dict[str, Any], task_vars: dict[str, Any]) -> dict[str, Any]:
        """Ask how large the archive is, and get that much of it; a node that gives anything else is refused."""
        answer = self.execute(self._task.action, arguments, task_vars)
        if answer.get("failed") or self._task.check_mode:
            return answer
        size, digest = answer.get("size_bytes", -1), answer.get("sha256", "")
        limit = int(arguments.get("limit_bytes", 0))
        if not 0 < size <= limit or not _DIGEST.fullmatch(digest):
            raise AnsibleActionFail(f"the node says that its archive has {size} bytes: the limit is {limit}")
        descriptor = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as out:
                self._copy(out, arguments, size, digest, task_vars)
        except BaseException:
            os.unlink(destination)  # noqa: PTH108 - beside os.open
            raise
        return {"changed": False, "size_bytes": size, "sha256": digest}

    def _copy(
        self, out: BinaryIO, arguments: dict[str, Any], size: int, digest: str, task_vars: dict[str, Any]
    ) -> None:
        """Write the pieces of an archive; raises AnsibleActionFail unless they are what the node announced."""
        found, offset = hashlib.sha256(), 0
        while offset < size:
            answer = self.execute(self._task.action, {**arguments, "offset": offset}, task_vars)
            if answer.get("failed"):
                raise AnsibleActionFail(str(answer.get("msg")))
            piece = _decoded(answer.get("piece", ""))
            if len(piece) != min(PIECE_BYTES, size - offset):
                raise AnsibleActionFail(
                    "the archive on the node changed while it was read, or is not what it was said to be"
                )
            found.update(piece)
            out.write(piece)
            offset += len(piece)
        if found.hexdigest() != digest:
            raise AnsibleActionFail("the archive does not have the digest that the node gave: it changed meanwhile")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AnsibleActionFail("the node gave a piece of its archive that is not base64") from error
