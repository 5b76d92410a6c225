"""Renews ``provision/planning/driver/data/supported-gpus.json`` from the list that a driver ships.

``supported-gpus.json`` lies in the folder ``supported-gpus`` of a driver's installer, and in the documentation of the
packages ``nvidia-driver`` (RPM) and ``nvidia-driver-assistant``.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from provision.planning.driver.gpu_list import parse_list, render_list, renew_list

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(__file__).parents[2] / "provision" / "planning" / "driver" / "data" / "supported-gpus.json"


def main(arguments: Sequence[str], data: Path = DATA) -> int:
    """Write the data file again and say what became of the groups; 1 when the file is not a driver's list."""
    options = _parse(arguments)
    present = parse_list(data.read_bytes())
    source = f"supported-gpus.json of driver {options.driver}; first branches of chips: the list of {present.date}"
    try:
        shipped = options.file.read_bytes()
        renewed = renew_list(shipped, present, date=datetime.now(UTC).date().isoformat(), source=source)
    except (OSError, msgspec.MsgspecError) as error:
        print(f"{options.file} is not a driver's supported-gpus.json: {error}", file=sys.stderr)
        return 1
    draft = data.with_suffix(".new")
    draft.write_text(render_list(renewed), encoding="utf-8")
    draft.replace(data)
    before, after = ({key for group in each.groups for key in group.gpus} for each in (present, renewed))
    print(f"{data}: {len(after)} GPUs, {len(after - before)} new, {len(before - after)} gone")
    return 0


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make supported-gpus", description=__doc__)
    parser.add_argument("file", type=Path, help="supported-gpus.json of a driver")
    parser.add_argument("driver", type=_version, help="the driver's version, such as 595.91.07")
    return parser.parse_args(arguments)


def _version(text: str) -> str:
    if not re.fullmatch(r"[1-9][0-9]{2}\.[0-9]{1,3}(\.[0-9]{2})?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a driver's version")
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
