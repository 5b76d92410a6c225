"""Lists the products that are recognised by what they leave on a node, and the files and folders of each.

Where the paths are from: the products' own repositories, late in 2026. NVIDIA/nvidia-container-toolkit ``packaging/``,
``deployments/systemd/`` and ``cmd/nvidia-ctk-installer/``; NVIDIA/gpu-operator ``assets/state-container-toolkit`` and
``state-operator-validation``; NVIDIA/gpu-driver-container (kernel hook); NVIDIA/deepops ``roles/facts``,
``nvidia-dcgm-exporter``, ``nvidia-gpu-operator-node-prep`` and NVIDIA/ansible-role-nvidia-driver;
kubernetes-sigs/kubespray ``roles/container-engine/containerd`` and ``roles/kubernetes/node``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from provision.planning.node_plan import Role


@dataclass(frozen=True)
class Product:
    """One product; ``code`` is its name in messages for programs, and the name of its page.

    Any path of ``marks`` that is there shows that it was installed, and so does a text of ``mentions`` in a file of a
    container engine. ``also`` are paths of it that say nothing by themselves, as others have them too. A warning is
    given where a plan has something to do for one of ``roles``.
    """

    code: str
    name: str
    marks: tuple[str, ...]
    meaning: str
    remedy: str
    roles: frozenset[Role]
    also: tuple[str, ...] = ()
    mentions: tuple[str, ...] = ()

    @property
    def page(self) -> str:
        """The page for people who come from it."""
        return f"docs/migrate/{self.code}.md"


RUNFILE: Final = Product(
    code="runfile",
    name="a .run driver",
    marks=("/usr/bin/nvidia-uninstall", "/usr/bin/nvidia-installer"),
    also=(
        "/etc/modprobe.d/nvidia-installer-disable-nouveau.conf",
        "/var/lib/nvidia/log",
        "/var/log/nvidia-installer.log",
    ),
    meaning="NVIDIA's installer put the driver there: no package owns its files, and packages would overwrite them",
    remedy="run `nvidia-uninstall --silent` on the drained node before apply, or declare driver.enabled: false",
    roles=frozenset({Role.DRIVER}),
)
GPU_OPERATOR: Final = Product(
    code="gpu-operator",
    name="NVIDIA's GPU operator",
    marks=(
        "/run/kernel/postinst.d/update-nvidia-driver",
        "/run/nvidia/driver/usr/bin/nvidia-smi",
        "/run/nvidia/toolkit/toolkit.pid",
        "/run/nvidia/validations",
        "/usr/local/nvidia/toolkit",
    ),
    mentions=("/usr/local/nvidia/toolkit",),
    also=("/etc/containerd/conf.d/99-nvidia.toml", "/etc/crio/crio.conf.d/99-nvidia.conf", "/run/cdi/nvidia.yaml"),
    meaning="its pods put driver, runtime handlers and device plugin on the node, and write them again when they start",
    remedy="take its operands off the node (label nvidia.com/gpu.deploy.operands=false) before apply",
    roles=frozenset(Role),
)
NVIDIA_DOCKER2: Final = Product(
    code="nvidia-docker2",
    name="nvidia-docker2",
    marks=("/usr/bin/nvidia-docker",),
    meaning="Docker's runtime nvidia is its: the environment of any image decides which GPUs a container gets",
    remedy="declare runtime.adopt: true, and remove the package when nothing calls `nvidia-docker` any more",
    roles=frozenset({Role.RUNTIME}),
)
CONTAINER_TOOLKIT: Final = Product(
    code="nvidia-container-toolkit",
    name="NVIDIA's container toolkit",
    marks=(
        "/etc/nvidia-container-runtime/config.toml",
        "/usr/bin/nvidia-container-runtime",
        "/usr/bin/nvidia-container-runtime-hook",
        "/usr/bin/nvidia-ctk",
        "/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json",
    ),
    mentions=("/usr/bin/nvidia-container-runtime",),
    also=(
        "/etc/cdi/nvidia.yaml",
        "/etc/containerd/conf.d/99-nvidia.toml",
        "/etc/crio/crio.conf.d/99-nvidia.toml",
        "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env",
        "/run/cdi/nvidia.yaml",
    ),
    meaning="its runtime lets the environment of any image decide which GPUs a container gets",
    remedy="declare runtime.adopt: true to take its handler over, then remove its packages",
    roles=frozenset({Role.RUNTIME}),
)
DEEPOPS: Final = Product(
    code="deepops",
    name="DeepOps",
    marks=(
        "/etc/ansible/facts.d/gpus.fact",
        "/etc/ansible/facts.d/topology.fact",
        "/etc/systemd/system/docker.dcgm-exporter.service",
    ),
    also=(
        "/etc/modprobe.d/blocklist-nouveau.conf",
        "/etc/modprobe.d/nvidia.conf",
        "/etc/modules-load.d/nvidia-driver.conf",
        "/etc/systemd/system/nvidia-persistenced.service.d/override.conf",
    ),
    meaning="its playbooks install a driver and a container toolkit of their own choice whenever they run",
    remedy="leave its GPU roles out from now on: its nvidia-driver playbook moves what grapnel installed",
    roles=frozenset({Role.DRIVER, Role.RUNTIME}),
)
KUBESPRAY: Final = Product(
    code="kubespray",
    name="kubespray",
    marks=("/etc/containerd/cri-base.json", "/etc/kubernetes/kubelet-config.yaml"),
    also=("/etc/kubernetes/kubelet.env", "/etc/systemd/system/containerd.service", "/usr/local/bin/containerd"),
    meaning="where it manages containerd, each run writes /etc/containerd/config.toml as a whole, without our import",
    remedy="give it the import in containerd_extra_args, and declare driver and device plugin here alone",
    roles=frozenset({Role.RUNTIME}),
)
# In the order in which they are told: what stands in the way first.
PRODUCTS: Final = (RUNFILE, GPU_OPERATOR, NVIDIA_DOCKER2, CONTAINER_TOOLKIT, DEEPOPS, KUBESPRAY)
