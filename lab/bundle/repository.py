"""Turns a folder of .deb files into a signed apt repository: Packages, Packages.gz, Release, InRelease.

Format: the Debian wiki's "DebianRepository/Format". The lab's own key is generated once and kept in the cache.
"""

from __future__ import annotations

import gzip
import hashlib
import tempfile
import time
from email.utils import formatdate
from typing import TYPE_CHECKING

from lab.machine.command import run
from lab.machine.folders import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

OWNER = "grapnel laboratory <lab@grapnel.invalid>"
PUBLIC_KEY = "signing-key.asc"
GPG_TIMEOUT_S = 60.0


def publish(folder: Path, suite: str, key_dir: Path, component: str = "") -> None:
    """Describe and sign every package in ``folder``: a flat repository.

    With a ``component`` it is one with suites, and ``folder`` is that of the suite: ``dists/SUITE`` below its root.
    """
    root, place = (folder.parents[1], f"{component}/binary-amd64/") if component else (folder, "")
    packages = "\n".join(_stanza(deb, root) for deb in sorted(folder.glob("*.deb"))).encode()
    indexes = {f"{place}Packages": packages, f"{place}Packages.gz": gzip.compress(packages, 6, mtime=0)}
    for name, data in indexes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    release = _release(suite, indexes, component)
    (folder / "Release").write_text(release)
    secret = signing_key(key_dir)
    (folder / "InRelease").write_text(_gpg(secret, "--clearsign", input_text=release))
    (folder / PUBLIC_KEY).write_text(_gpg(secret, "--armor", "--export"))


def signing_key(key_dir: Path) -> Path:
    """Return the lab's secret key (armoured), generating it if there is none."""
    secret = key_dir / "secret.asc"
    if not secret.exists():
        generate = ("--quick-generate-key", OWNER, "ed25519", "sign", "never")
        armoured = _gpg(None, "--armor", "--export-secret-keys", first=generate)
        write_atomic(secret, armoured, 0o600)
    return secret


def _gpg(secret: Path | None, *arguments: str, first: tuple[str, ...] = (), input_text: str | None = None) -> str:
    """Run gpg with a temporary home, which is removed after the call together with its agent."""
    with tempfile.TemporaryDirectory(prefix="gn-gpg-") as home:
        gpg = [
            "gpg",
            "--homedir",
            home,
            "--batch",
            "--quiet",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
        ]
        try:
            if secret:
                run([*gpg, "--import", str(secret)], timeout_s=GPG_TIMEOUT_S)
            if first:
                run([*gpg, *first], timeout_s=GPG_TIMEOUT_S)
            return run([*gpg, *arguments], timeout_s=GPG_TIMEOUT_S, input_text=input_text).stdout
        finally:
            run(["gpgconf", "--homedir", home, "--kill", "all"], timeout_s=GPG_TIMEOUT_S, check=False)


def _stanza(deb: Path, root: Path) -> str:
    control = run(["dpkg-deb", "--field", str(deb)], timeout_s=60).stdout.rstrip("\n")
    with deb.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return f"{control}\nFilename: ./{deb.relative_to(root)}\nSize: {deb.stat().st_size}\nSHA256: {digest}\n"


def _release(suite: str, indexes: dict[str, bytes], component: str) -> str:
    lines = [
        "Origin: grapnel-lab",
        "Label: grapnel-lab",
        f"Suite: {suite}",
        f"Codename: {suite}",
        "Architectures: amd64 all",
        *([f"Components: {component}"] if component else ()),
        f"Date: {formatdate(time.time(), usegmt=True)}",
        "SHA256:",
    ]
    lines += [f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}" for name, data in indexes.items()]
    return "\n".join(lines) + "\n"
