"""Runs modules on the host around a container: in the namespaces of its process 1, with nothing left behind on it."""

from __future__ import annotations

DOCUMENTATION = """
name: host
short_description: act on the host around a privileged container
description:
  - Runs every command in the namespaces of a process of the host, by nsenter of util-linux. The container needs the
    host's PID namespace and the capabilities of root there.
  - Files go through the same way, so that a path means what it means on the host, links included.
version_added: 0.1.0
author:
  - The grapnel authors (@grapnel)
options:
  host_pid:
    description: the process whose namespaces are entered
    type: int
    default: 1
    vars:
      - name: ansible_grapnel_host_pid
"""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase

# What a login as root has; nothing of the container's environment is any business of the host's.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "USER": "root",
}
_CHUNK = "65536"


class Connection(ConnectionBase):  # type: ignore[misc] # Ansible has no types
    """A connection to the host that this container runs on."""

    transport = "grapnel.node.host"
    has_pipelining = True

    def _connect(self) -> Connection:
        if not self._connected:  # type: ignore[has-type] # as above
            done = self._run(["/bin/true"])
            if done.returncode:
                reason = done.stderr.decode(errors="replace").strip() or f"nsenter ended with {done.returncode}"
                raise AnsibleConnectionFailure(f"the host's namespaces cannot be entered: {reason}")
            self._connected = True
        return self

    def exec_command(  # its arguments are Ansible's
        self,
        cmd: str,
        in_data: bytes | None = None,
        sudoable: bool = True,  # noqa: FBT001, FBT002 - as Ansible has it
    ) -> tuple[int, bytes, bytes]:
        """Run a command by the host's shell."""
        super().exec_command(cmd, in_data=in_data, sudoable=sudoable)
        done = self._run(["/bin/sh", "-c", cmd], input=in_data or b"")
        return done.returncode, done.stdout, done.stderr

    def put_file(self, in_path: str, out_path: str) -> None:
        """Write a file of the container to the host."""
        super().put_file(in_path, out_path)
        with Path(in_path).open("rb") as source:
            done = self._run(["dd", f"of={out_path}", f"bs={_CHUNK}", "status=none"], stdin=source)
        self._require(done, f"{out_path} cannot be written on the host")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Write a file of the host to the container."""
        super().fetch_file(in_path, out_path)
        with Path(out_path).open("wb") as target:
            done = self._run(["dd", f"if={in_path}", f"bs={_CHUNK}", "status=none"], stdout=target)
        self._require(done, f"{in_path} of the host cannot be read")

    def close(self) -> None:
        """End nothing: each command is a process of its own."""
        self._connected = False

    def _run(self, argv: list[str], **more: Any) -> subprocess.CompletedProcess[bytes]:
        nsenter = shutil.which("nsenter")
        if nsenter is None:
            raise AnsibleError("nsenter is missing in this container: install util-linux")
        target = str(self.get_option("host_pid"))
        entered = [nsenter, "--target", target, "--mount", "--uts", "--ipc", "--net", "--pid", "--", *argv]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more}
        if "stdin" not in streams and "input" not in streams:
            streams["stdin"] = subprocess.DEVNULL
        return subprocess.run(entered, env=ENVIRONMENT, cwd=os.sep, check=False, **streams)

    @staticmethod
    def _require(done: subprocess.CompletedProcess[bytes], what: str) -> None:
        if done.returncode:
            raise AnsibleError(f"{what}: {(done.stderr or b'').decode(errors='replace').strip()}")
