"""Print the path of an image's archive: `python3 -m lab.images gpu-shell`."""

import argparse

from lab.images import NAMES, archive

parser = argparse.ArgumentParser(prog="python3 -m lab.images", description=__doc__)
parser.add_argument("name", choices=NAMES)
print(archive(parser.parse_args().name))
