"""The checksums of a release, signed with the real ssh-keygen."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tasks.release.__main__ import sign_sums

if TYPE_CHECKING:
    from pathlib import Path


def test_the_plain_tool_verifies_the_sums_as_installing_says(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    sums, signers = tmp_path / "SHA256SUMS", tmp_path / "grapnel_signers"
    sums.write_text("")
    signers.write_text(f'grapnel namespaces="grapnel-release" {(tmp_path / "key.pub").read_text()}')

    sign_sums(sums, tmp_path / "key")

    command = "ssh-keygen -Y verify -f grapnel_signers -I grapnel -n grapnel-release -s SHA256SUMS.sig"
    with sums.open("rb") as stream:
        subprocess.run(command.split(), cwd=tmp_path, stdin=stream, check=True)
