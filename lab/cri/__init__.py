"""A client of container engines that does what a kubelet does: pods and containers over the CRI socket.

    with Cri(socket) as cri:
        pod = cri.run_pod("job", handler="nvidia")
        done = cri.run(pod, "docker.io/local/gpu-shell:1", ["nvidia-smi", "-L"], devices=[Device("/dev/nvidia0")])

`engine` starts a containerd of its own for tests. Images belong to `lab.images`, clusters with a real kubelet to the
nodes of the laboratory.
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
