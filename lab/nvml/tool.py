"""Shows the machine of a library or state file, and changes it while processes use it (command line).

python3 -m lab.nvml.tool libnvidia-ml.so.550.163.01 show
python3 -m lab.nvml.tool libnvidia-ml.so.550.163.01 set gpu0.temperature=90 gpu0.ecc.volatile_uncorrected=1
python3 -m lab.nvml.tool libnvidia-ml.so.550.163.01 xid 0 79
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.nvml import models, state, text
from lab.nvml.errors import NvmlError, PathError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.nvml.machine import Machine


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python3 -m lab.nvml.tool", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="a state file, or a library that was installed with lab.nvml.install")
    verbs = parser.add_subparsers(dest="verb", required=True)
    new = verbs.add_parser("new", help="write a machine with GPUs of one model")
    new.add_argument("model", choices=sorted(models.MODELS))
    new.add_argument("count", type=int, nargs="?", default=1)
    show = verbs.add_parser("show", help="print the values, one per line")
    show.add_argument("prefix", nargs="?", default="", help="only values whose path begins with this")
    change = verbs.add_parser("set", help="change values: path=value")
    change.add_argument("changes", nargs="+")
    xid = verbs.add_parser("xid", help="make a GPU report an XID error")
    xid.add_argument("gpu", type=int)
    xid.add_argument("xid", type=int)
    fail = verbs.add_parser("fail", help="make an NVML function fail with a code")
    fail.add_argument("function", help="without _v2, or * for all")
    fail.add_argument("code", type=int)
    fail.add_argument("--gpu", type=int, default=-1, help="only for the GPU with this index")
    fail.add_argument("--driver", default="", help="only with this version of the driver")
    lose = verbs.add_parser("lose", help="make a GPU fall off the bus")
    lose.add_argument("gpu", type=int)
    verbs.add_parser("heal", help="end all failures (past XID errors stay)")
    return parser


def _change(machine: Machine, chosen: argparse.Namespace) -> Machine:
    match chosen.verb:
        case "set":
            return _set(machine, chosen.changes)
        case "xid":
            return machine.with_xid(chosen.gpu, chosen.xid)
        case "fail":
            return machine.with_failure(chosen.function, chosen.code, chosen.gpu, chosen.driver)
        case "lose":
            return machine.with_gpu_lost(chosen.gpu)
        case _:
            return machine.without_failures()


def _set(machine: Machine, changes: Sequence[str]) -> Machine:
    for one in changes:
        path, separator, value = one.partition("=")
        if not separator:
            raise PathError(f"not path=value: {one}")
        machine = text.change(machine, path, value)
    return machine


def run(arguments: Sequence[str]) -> None:
    """Run one command. Raises NvmlError."""
    chosen = _parser().parse_args(arguments)
    if chosen.verb == "show":
        lines = text.encode(state.read(chosen.file)).splitlines()
        print("\n".join(line for line in lines if line.startswith(chosen.prefix)))
    elif chosen.verb == "new":
        state.write(chosen.file, models.machine(chosen.model, chosen.count))
    else:
        state.update(chosen.file, lambda machine: _change(machine, chosen))


def main() -> int:
    """Run the command of this process; return its exit status."""
    try:
        run(sys.argv[1:])
    except NvmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
