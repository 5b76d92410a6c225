"""A small virtual machine whose kernel enforces SELinux or AppArmor: what no container on this machine can show.

QEMU emulates the processor, so it needs no KVM: it boots Debian's own kernel and policy in some ten seconds. With
firmware that checks signatures, its kernel is locked down and loads signed modules only.
"""

from lab.nodes.microvm.boot import boot, boot_disk
from lab.nodes.microvm.secureboot import SecureBoot, ensure_secure_boot
from lab.nodes.microvm.system import System, change, ensure

__all__ = ["SecureBoot", "System", "boot", "boot_disk", "change", "ensure", "ensure_secure_boot"]
