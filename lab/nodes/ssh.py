"""Connects to a site's nodes by ssh: one key per site, host keys that the lab generated and therefore knows."""

from __future__ import annotations

import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from lab.machine.command import run

KEY_TIMEOUT_S = 20.0
CLOSE_TIMEOUT_S = 5.0
CONTROL_DIR = Path("/run/grapnel-lab")  # sockets need short paths, which the state folder may not have


def make_key(path: Path, comment: str) -> Path:
    """Create a key pair unless it exists; return the public half."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)]
        run(command, timeout_s=KEY_TIMEOUT_S)
    return path.with_name(f"{path.name}.pub")


@dataclass(frozen=True)
class SshAccess:
    """The client side of one site; ``folder`` is the site's, ``bridge`` names its control sockets' folder."""

    folder: Path
    bridge: str

    @property
    def key(self) -> Path:
        """The private key that every node of the site accepts for root."""
        return self.folder / "ssh" / "id_ed25519"

    @property
    def known_hosts(self) -> Path:
        """The host keys of the site's nodes, by address."""
        return self.folder / "ssh" / "known_hosts"

    @property
    def control_dir(self) -> Path:
        """The folder of the control sockets of shared connections."""
        return CONTROL_DIR / self.bridge

    def prepare(self) -> None:
        """Create the key and the folder of the control sockets."""
        make_key(self.key, f"grapnel-lab {self.bridge}")
        self.control_dir.mkdir(parents=True, exist_ok=True, mode=0o700)

    def options(self) -> list[str]:
        """Return ssh options: trust only this site's nodes, ignore the user's files, share connections."""
        pairs = {
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 10,
            "ServerAliveInterval": 5,
            "ControlMaster": "auto",
            "ControlPersist": "60s",
            "ControlPath": f"{self.control_dir}/%h",
        }
        return [word for name, value in pairs.items() for word in ("-o", f"{name}={value}")]

    def argv(self, address: str, command: list[str]) -> list[str]:
        """Return the ssh command line that runs ``command`` on a node, word for word."""
        return ["ssh", "-q", "-F", "none", *self.options(), f"root@{address}", shlex.join(command)]

    def close(self, address: str) -> None:
        """Close the shared connection to a node, if there is one."""
        socket = self.control_dir / address
        if socket.exists():
            options = ["-o", f"ControlPath={socket}"]
            run(["ssh", "-F", "none", *options, "-O", "exit", address], timeout_s=CLOSE_TIMEOUT_S, check=False)
            socket.unlink(missing_ok=True)

    def close_all(self) -> None:
        """Close every shared connection of the site and remove the sockets' folder."""
        if self.control_dir.is_dir():
            for socket in self.control_dir.iterdir():
                self.close(socket.name)
            shutil.rmtree(self.control_dir)
