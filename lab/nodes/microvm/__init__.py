"""A small virtual machine whose kernel enforces SELinux or AppArmor: what no container on this machine can show.

QEMU emulates the processor, so it needs no KVM: it boots Debian's own kernel and policy in some ten seconds.
"""

from lab.nodes.microvm.boot import boot, boot_disk
from lab.nodes.microvm.system import System, change, ensure

__all__ = ["System", "boot", "boot_disk", "change", "ensure"]
