"""Runs pods and containers through an engine's CRI socket, as a kubelet does.

    with Cri(socket) as cri:
        pod = cri.run_pod("job", handler="nvidia")
        done = cri.run(pod, "docker.io/local/gpu-shell:1", ["nvidia-smi", "-L"], devices=[Device("/dev/nvidia0")])

`engine` starts a private containerd for tests. Images are in `lab.images`, clusters with a real kubelet in
`lab.cluster`.
"""

from lab.cri.client import Cri, Finished, Pod
from lab.cri.config import ContainerSpec, Device, Mount, container_config, container_config_from_allocation
from lab.cri.errors import CriError

__all__ = [
    "ContainerSpec",
    "Cri",
    "CriError",
    "Device",
    "Finished",
    "Mount",
    "Pod",
    "container_config",
    "container_config_from_allocation",
]
