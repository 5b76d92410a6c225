"""Builds container images from Debian packages, as OCI layout archives or unpacked to a folder, without a registry.

    ctr --namespace k8s.io images import "$(python3 -m lab.images gpu-shell)"
    rootfs("gpu-shell", folder)                      # the same content for plain runc

`recipes` defines the content of each image, `content` and `layout` pack it. `lab.bundle` fetches the packages.
"""

from lab.images.recipes import RECIPES
from lab.images.store import archive, reference, rootfs

NAMES = tuple(RECIPES)

__all__ = ["NAMES", "archive", "reference", "rootfs"]
