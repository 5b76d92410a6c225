"""Adds a version of Kubernetes: ``python3 -m lab.golang add 1.35.4``."""

from __future__ import annotations

import argparse
import sys

from lab.golang.add import add_kubernetes
from lab.machine.errors import LabError


def main() -> int:
    """Run the verb; exit status 0 done, 1 it failed (with the reason), 2 usage."""
    parser = argparse.ArgumentParser(prog="python3 -m lab.golang", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    adding = verbs.add_parser("add", help="write go.mod and go.sum of a version of Kubernetes")
    adding.add_argument("version")
    try:
        folder = add_kubernetes(parser.parse_args().version, lambda line: print(line, file=sys.stderr, flush=True))
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    print(f"{folder}: review it and commit it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
