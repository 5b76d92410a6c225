"""Builds the driver's real kernel modules, once each: the archives that ``dkms mktarball --binaries-only`` writes.

A node that finds such an archive where Debian's packages look for it installs the driver without compiling. What is
built comes from the suite's package folder, through the real dkms and compiler, in a builder's tree.
"""

from lab.modules.archives import ARCHIVES, Archive, archive, kernel_release
from lab.modules.handover import hand_over

__all__ = ["ARCHIVES", "Archive", "archive", "hand_over", "kernel_release"]
