"""``python -m tasks.image [--architecture NAME] [--wheel FILE] [--output FILE] [--name NAME]``: ``make image``."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from lab.machine.errors import LabError
from lab.machine.folders import cache_dir
from provision.planning.architecture import ARCHITECTURES, X86_64
from provision.planning.supply.payload.errors import PayloadError
from tasks.environment import uv_path
from tasks.errors import TaskError
from tasks.image import ROOT, build
from tasks.image.python import OF_THIS_MACHINE
from tasks.progress import Progress
from tasks.release.wheel import build_wheel

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Build the image; 1 when a part of it cannot be had."""
    parser = argparse.ArgumentParser(prog="python -m tasks.image", description="build the image of grapnel")
    parser.add_argument("--wheel", type=Path, metavar="FILE", help="of a release (default: built of this checkout)")
    parser.add_argument("--architecture", choices=sorted(ARCHITECTURES), default=OF_THIS_MACHINE.name, help="of nodes")
    parser.add_argument("--output", type=Path, metavar="FILE", help="default: below dist/image")
    parser.add_argument("--name", help="full name of the image (default: docker.io/local/grapnel:VERSION)")
    args = parser.parse_args(arguments)
    uv = uv_path(Progress(log_dir=cache_dir() / "logs"))
    try:
        with tempfile.TemporaryDirectory(prefix="grapnel-wheel-") as folder:
            wheel = args.wheel or build_wheel(Path(folder) / "wheel", Path(folder))
            name = args.name or f"docker.io/local/grapnel:{wheel.name.split('-')[1]}"
            output = args.output or ROOT / "dist" / "image" / _file_name(args.architecture)
            output.parent.mkdir(parents=True, exist_ok=True)
            built = build(wheel, uv, output, name, architecture=ARCHITECTURES[args.architecture])
    except (LabError, PayloadError, TaskError) as error:
        hint = getattr(error, "hint", "")
        print(f"error: {error}{f': {hint}' if hint else ''}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"error: {' '.join(error.cmd[:6])} failed:\n{error.stderr}", file=sys.stderr)
        return 1
    print(f"{name} {built.digest}, {built.layer_bytes / 1e6:.0f} MB: {built.archive}")
    return 0


def _file_name(architecture: str) -> str:
    return "grapnel.tar" if architecture == X86_64.name else f"grapnel-{architecture}.tar"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
