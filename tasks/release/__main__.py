"""``python -m tasks.release [--output DIR]``: what ``make release`` runs."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab.machine.errors import LabError
from lab.machine.folders import cache_dir
from provision.planning.supply.bundle.errors import BundleError
from provision.planning.supply.bundle.signature import sign, signature_beside
from provision.planning.supply.payload.archive import write_file
from provision.planning.supply.payload.errors import PayloadError
from tasks.environment import uv_path
from tasks.errors import TaskError
from tasks.image import build
from tasks.progress import Progress
from tasks.release.bill_of_materials import render_bill, render_constraints
from tasks.release.chart import pack_chart
from tasks.release.notes import NotesError, notes_of
from tasks.release.sums import render_sums
from tasks.release.wheel import ROOT, build_wheel, run_tool

if TYPE_CHECKING:
    from collections.abc import Sequence

NAMESPACE: Final = "grapnel-release"


def main(arguments: Sequence[str]) -> int:
    """Make the release; 1 when a part of it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m tasks.release", description="make a release")
    parser.add_argument("--output", type=Path, default=ROOT / "dist" / "release", metavar="DIR")
    key = os.environ.get("GRAPNEL_SIGNING_KEY")
    parser.add_argument("--sign", type=Path, default=Path(key) if key else None, metavar="KEY")
    args = parser.parse_args(arguments)
    output = args.output.absolute()
    try:
        with tempfile.TemporaryDirectory(prefix="grapnel-release-") as folder:
            made = _make(Path(folder))
            if args.sign is not None:
                sign_sums(made / "SHA256SUMS", args.sign)
            _replace(output, made)
    except (PayloadError, NotesError, BundleError, LabError, TaskError) as error:
        hint = getattr(error, "hint", "")
        print(f"error: {error}{f': {hint}' if hint else ''}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd[:6])} failed:\n{error.stderr}", file=sys.stderr)
        return 1
    for path in sorted(output.iterdir()):
        print(f"{path.stat().st_size:>12,} {path}")
    if args.sign is None:
        print("not signed: name a key with GRAPNEL_SIGNING_KEY", file=sys.stderr)
    return 0


def sign_sums(sums: Path, key: Path) -> None:
    """Sign the checksums, which stand for all files of the release; raises `BundleError`, OSError."""
    with sums.open("rb") as stream:
        write_file(signature_beside(sums), sign(stream, key, NAMESPACE))


def _make(folder: Path) -> Path:
    """Make all files in a folder of their own, so that a release is there whole or not at all."""
    release = folder / "release"
    release.mkdir()
    wheel = build_wheel(release, folder)
    licence, collection = ROOT / "LICENSE", folder / "collection"
    shutil.copytree(ROOT / "playbooks", collection, symlinks=True)
    shutil.copy(licence, collection)
    galaxy = str(Path(sys.executable).with_name("ansible-galaxy"))
    run_tool([galaxy, "collection", "build", str(collection), "--output-path", str(release)])
    version = wheel.name.split("-")[1]
    pack_chart(ROOT / "deploy" / "chart" / "grapnel", licence, release)
    build(
        wheel,
        uv_path(Progress(log_dir=cache_dir() / "logs")),
        release / f"grapnel-image-{version}.tar",
        f"docker.io/local/grapnel:{version}",
    )
    (release / "CHANGES.md").write_text(notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version))
    (release / "sbom.cdx.json").write_text(render_bill(version, ROOT / "requirements"))
    (release / "constraints.txt").write_text(render_constraints(ROOT / "requirements"))
    (release / "SHA256SUMS").write_text(render_sums(release))
    return release


def _replace(output: Path, made: Path) -> None:
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(output, ignore_errors=True)
    shutil.move(made, output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
