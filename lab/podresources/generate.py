"""Generate the Python code for `proto/api.proto` beside it: `python3 -m lab.podresources.generate`."""

from __future__ import annotations

import sys
from pathlib import Path

from grpc_tools import protoc  # type: ignore[import-untyped] # ships no types

_ROOT = Path(__file__).parents[2]
_PROTO = Path(__file__).with_name("proto") / "api.proto"


def generate(output: Path) -> int:
    """Write the generated files below `output` (by their path in the repository); return protoc's status."""
    outputs = [f"--{kind}={output}" for kind in ("python_out", "pyi_out")]
    status: int = protoc.main(["protoc", f"--proto_path={_ROOT}", *outputs, str(_PROTO)])
    return status


if __name__ == "__main__":
    sys.exit(generate(_ROOT))
