"""Works out where Ansible connects to for a machine, from its inventory. Pure.

Two names with the same endpoint are one machine, whatever the inventory calls them. Not here: what a name means to the
resolver (`provision.declaration.fleet.resolve`), and an alias of the operator's ssh_config.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

SSH_PORT: Final = 22
_SSH: Final = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "ansible.builtin.ssh"})
_LOCAL: Final = frozenset({"local", "ansible.builtin.local"})
_OWN_NAME: Final = re.compile(r"\{\{\s*inventory_hostname\s*\}\}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A machine by how it is reached.

    ``kind`` is a connection plugin, "ssh" for all of its spellings, empty where a template hides what is meant.
    """

    host: str
    port: int = SSH_PORT
    kind: str = "ssh"

    @property
    def network_host(self) -> str:
        """The host that a connection over the network goes to, empty for one that takes another way."""
        return self.host if self.kind == "ssh" else ""

    def spellings(self, addresses: Collection[str]) -> tuple[str, ...]:
        """Return its own spelling, and those by the addresses that the resolver has for its host."""
        return (str(self), *(f"{address}:{self.port}" for address in sorted(addresses) if address != self.host))

    def __str__(self) -> str:
        """Return what locks and messages call it."""
        if self.kind == "local":
            return "local"
        return f"{self.host}:{self.port}" if self.kind in ("ssh", "") else f"{self.kind}:{self.host}"


def network_endpoints(endpoints: Mapping[str, Endpoint]) -> dict[str, str]:
    """Return how machines that are reached over the network are spelled, by name."""
    return {name: str(endpoint) for name, endpoint in endpoints.items() if endpoint.network_host}


def parse_endpoint(name: str, variables: Mapping[str, object]) -> Endpoint:
    """Return the endpoint of a host with these variables.

    Templates are not rendered, but for the host's own name: where another one is, the name stands in.
    """
    host = _OWN_NAME.sub(lambda _match: name, _text(variables, "ansible_host", "ansible_ssh_host")) or name
    kind = _text(variables, "ansible_connection") or "ssh"
    port = _text(variables, "ansible_port", "ansible_ssh_port")
    if "{{" in host + kind:
        host, kind = name, ""
    return Endpoint(
        host=host.lower(),
        port=int(port) if port.isdecimal() else SSH_PORT,
        kind="ssh" if kind in _SSH else "local" if kind in _LOCAL else kind,
    )


def _text(variables: Mapping[str, object], *names: str) -> str:
    """Return the first variable that is there, as text; empty for one that is a secret or a structure."""
    value = next((variables[name] for name in names if variables.get(name)), "")
    return str(value).strip() if isinstance(value, str | int) else ""
