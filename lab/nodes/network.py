"""Manages a site's network: its own bridge with its own /24, without forwarding or NAT: nodes reach nothing outside."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lab.machine.command import run
from lab.machine.errors import SiteError

if TYPE_CHECKING:
    from pathlib import Path

NETWORK = "10.177"
FIRST_NODE = 11
LAST_NODE = 250
TIMEOUT_S = 20.0
MARK = "grapnel-lab:"


@dataclass(frozen=True)
class Bridge:
    """The bridge of a site; ``subnet`` is the third octet. The interface's alias names its owner."""

    name: str
    subnet: int
    owner: Path

    @property
    def host_address(self) -> str:
        """The machine's own address on the bridge."""
        return f"{NETWORK}.{self.subnet}.1"

    def node_address(self, octet: int) -> str:
        """Return the address of the node with that last octet."""
        return f"{NETWORK}.{self.subnet}.{octet}"

    def create(self) -> None:
        """Create the bridge unless it exists; ``SiteError`` if the name belongs to something else."""
        owners = bridge_owners()
        if self.name in owners and owners[self.name] != str(self.owner):
            raise SiteError(f"interface {self.name} exists and belongs to {owners[self.name] or 'something else'}")
        if self.name not in owners:
            _ip("link", "add", self.name, "type", "bridge")
            _ip("link", "set", self.name, "alias", f"{MARK}{self.owner}")
        # A killed command may have left the bridge unfinished.
        _ip("addr", "replace", f"{self.host_address}/24", "dev", self.name)
        _ip("link", "set", self.name, "up")


def remove_bridge(name: str, owner: Path) -> None:
    """Remove the bridge if it exists and belongs to ``owner``."""
    if bridge_owners().get(name) == str(owner):
        _ip("link", "del", name)


def bridge_owners() -> dict[str, str]:
    """Return every interface of the machine with the site folder in its alias ("" for foreign ones)."""
    links = json.loads(_ip("-json", "link", "show"))
    aliases = {link["ifname"]: link.get("ifalias", "") for link in links}
    return {name: alias.removeprefix(MARK) if alias.startswith(MARK) else "" for name, alias in aliases.items()}


def free_subnet(wish: int) -> int:
    """Return a third octet that no address or route of the machine uses, counting up from ``wish``."""
    used = _used_subnets()
    for step in range(250):
        candidate = (wish + step) % 250 + 1
        if candidate not in used:
            return candidate
    raise SiteError(f"no free /24 in {NETWORK}.0.0/16", hint="destroy sites that are not needed: python3 -m lab status")


def _used_subnets() -> set[int]:
    text = " ".join((_ip("-4", "-oneline", "addr", "show"), _ip("-4", "route", "show", "table", "all")))
    words = (word for word in text.replace("/", " ").split() if word.startswith(f"{NETWORK}."))
    return {int(word.split(".")[2]) for word in words}


def _ip(*arguments: str) -> str:
    return run(["ip", *arguments], timeout_s=TIMEOUT_S).stdout
