"""Container images without a registry: made of Debian packages, packed as OCI layout archives, or unpacked to a folder.

    ctr --namespace k8s.io images import "$(python3 -m lab.images gpu-shell)"
    rootfs("gpu-shell", folder)                      # the same content for plain runc

What an image is made of stands in `recipes`, how files are packed in `content` and `layout`. Fetching packages belongs
to `lab.bundle`.
"""

from lab.images.recipes import RECIPES
from lab.images.store import archive, reference, rootfs

NAMES = tuple(RECIPES)

__all__ = ["NAMES", "archive", "reference", "rootfs"]
