"""Builds images and prints the paths of their archives: `python3 -m lab.images [NAME]...` (default: all)."""

import argparse

from lab.images import NAMES, archive

parser = argparse.ArgumentParser(prog="python3 -m lab.images", description=__doc__)
parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}")
for name in parser.parse_args().names or NAMES:
    print(archive(name))
