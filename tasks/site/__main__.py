"""`python -P -m tasks.site [--output FOLDER]`: build the site; exit status 1 if a link or an anchor leads nowhere."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tasks.site.build import build

OUTPUT = Path("dist/site")


def main() -> int:
    """Build everything anew, and say what is wrong."""
    parser = argparse.ArgumentParser(prog="python -P -m tasks.site")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"the folder of the site (default: {OUTPUT})")
    output: Path = parser.parse_args().output
    begun = time.monotonic()
    shutil.rmtree(output, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="grapnel-site-") as folder:
        warnings = build(output, Path(folder))
    print("\n".join(warnings) or f"documentation: {output / 'index.html'}, in {time.monotonic() - begun:.1f} s")
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
