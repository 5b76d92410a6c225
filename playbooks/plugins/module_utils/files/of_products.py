"""Looks for files and folders by which an installation of another product is recognised.

Only whether they are there: which product has them, and what that means, `provision.planning.products` knows.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host

# The same as those of provision.planning.products.table; a test compares them.
PRODUCT_FILES = (
    "/etc/ansible/facts.d/gpus.fact",
    "/etc/ansible/facts.d/topology.fact",
    "/etc/cdi/nvidia.yaml",
    "/etc/containerd/conf.d/99-nvidia.toml",
    "/etc/containerd/cri-base.json",
    "/etc/crio/crio.conf.d/99-nvidia.conf",
    "/etc/crio/crio.conf.d/99-nvidia.toml",
    "/etc/kubernetes/kubelet-config.yaml",
    "/etc/kubernetes/kubelet.env",
    "/etc/modprobe.d/blocklist-nouveau.conf",
    "/etc/modprobe.d/nvidia-installer-disable-nouveau.conf",
    "/etc/modprobe.d/nvidia.conf",
    "/etc/modules-load.d/nvidia-driver.conf",
    "/etc/nvidia-container-runtime/config.toml",
    "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
    "/etc/systemd/system/containerd.service",
    "/etc/systemd/system/docker.dcgm-exporter.service",
    "/etc/systemd/system/nvidia-persistenced.service.d/override.conf",
    "/run/cdi/nvidia.yaml",
    "/run/kernel/postinst.d/update-nvidia-driver",
    "/run/nvidia/driver/usr/bin/nvidia-smi",
    "/run/nvidia/toolkit/toolkit.pid",
    "/run/nvidia/validations",
    "/usr/bin/nvidia-container-runtime",
    "/usr/bin/nvidia-container-runtime-hook",
    "/usr/bin/nvidia-ctk",
    "/usr/bin/nvidia-docker",
    "/usr/bin/nvidia-installer",
    "/usr/bin/nvidia-uninstall",
    "/usr/local/bin/containerd",
    "/usr/local/nvidia/toolkit",
    "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    "/var/lib/nvidia/log",
    "/var/log/nvidia-installer.log",
)


def read_product_files(host: Host) -> list[str]:
    """Return the facts ``product_files``: those of the list that are there, links that lead nowhere too."""
    return [path for path in PRODUCT_FILES if os.path.lexists(host.path(path))]
