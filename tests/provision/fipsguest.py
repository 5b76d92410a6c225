"""Runs in a tree whose OpenSSL is in FIPS mode, and prints what the parts of grapnel did that take digests or sign."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
from ansible_collections.grapnel.node.plugins.module_utils.packages.source import file_digest, has_digest
from ansible_collections.grapnel.node.plugins.module_utils.removal.settings import find_settings

from plugin.drift.host import is_edited
from provision.planning.engines.files.mark import marked
from provision.planning.supply.bundle.signature import sign, verify
from provision.planning.supply.runfile.deb import DebPackage, PackedFile, write_deb

if TYPE_CHECKING:
    from collections.abc import Callable

HOME = Path("/fips")
TEXT = HOME / "fipsguest.py"
CHANGED = Path("/etc/apparmor.d/runc")  # a configuration file of a package


def tried(function: Callable[[], object]) -> object:
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the answer
        return f"{type(error).__name__}: {error}"


def refused() -> str:
    return hashlib.md5(b"").hexdigest()  # noqa: S324 - it has to be refused


def signed(kind: str) -> str:
    """Sign a file with a new key, and return whose the signature is; or what ssh-keygen says to such a key."""
    key = HOME / kind
    command = ["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(key)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        return made.stderr
    signers = f'ci namespaces="grapnel-bundle" {key.with_name(f"{kind}.pub").read_text()}'.encode()
    with TEXT.open("rb") as stream:
        return verify(stream, sign(stream, key), signers, "here")


def packed() -> list[str]:
    """Return what dpkg finds in a package that was made of an installer file: it lists MD5 digests."""
    place = HOME / "made.deb"
    fields = {"Package": "made", "Version": "1", "Architecture": "all", "Description": "made"}
    write_deb(DebPackage(fields, [PackedFile("usr/share/made", content=b"x")]), place, 0)
    listed = subprocess.run(["dpkg-deb", "--info", place, "md5sums"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def changed() -> list[str]:
    """Return which of a package's settings were changed, by the MD5 digests that dpkg has of them."""
    with CHANGED.open("a") as file:
        file.write("# changed\n")
    return [each.path for each in find_settings(Host(), ["apparmor"])]


def main() -> None:
    said = {
        "md5": tried(refused),
        "changed": tried(changed),
        "packed": tried(packed),
        "download": tried(lambda: has_digest(TEXT, f"SHA512:{file_digest(TEXT, 'sha512')}")),
        "mark": tried(lambda: [is_edited(f"{marked('x = 1')}{more}".encode(), "start") for more in ("", "y = 2")]),
        **{kind: tried(lambda kind=kind: signed(kind)) for kind in ("ecdsa", "rsa")},
    }
    sys.stdout.write(json.dumps(said))


if __name__ == "__main__":
    main()
