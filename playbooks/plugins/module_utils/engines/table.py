"""Lists the container engines: what each is called, and where it keeps what.

Facts, rehearsals, restarts and removals all read this table. What only one engine does has a file of its own beside it.
It is loaded with nearly every module, so it has no code.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN_FOLDER = "/etc/grapnel/containerd"  # of what our handler of a containerd needs
CTR = ("ctr", "containerd-ctr")  # names of containerd's own client; SUSE's is the second


@dataclass(frozen=True)
class Engine:
    """A row. All paths are absolute.

    ``programs`` are names in root's PATH, or paths; one of them serves. ``units`` are the services that it may be in;
    one that ``reloads`` takes its files in without a restart. At ``socket`` it listens for a kubelet. ``shim`` begins
    the name of what a container runs below. ``packages`` are what a plan may install of it, and what these bring or
    replace; ``data`` and ``groups`` of users are what they leave behind.

    ``folder`` has its settings. ``main`` is the file in it that is read first, and with ``is_shared`` grapnel's and
    others'; ``drop_ins`` is the folder of those that are read after it, with ``reads_any_name`` whatever their names.
    ``read_at_start`` begins the paths of more that are read only when it starts. ``question`` are the words after the
    program with which it reads all of them, and ``too_old`` what one says that does not know these.

    ``ours`` are files of grapnel's alone, and so are ``marked`` ones if they say so. ``watched`` are those of others,
    beside ``main``, that a plan follows from.
    """

    name: str
    programs: tuple[str, ...]
    units: tuple[str, ...] = ()
    reloads: bool = False
    packages: tuple[str, ...] = ()
    folder: str = ""
    main: str = ""
    is_shared: bool = False
    question: tuple[str, ...] = ()
    too_old: str = ""
    drop_ins: str = ""
    reads_any_name: bool = False
    watched: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()
    marked: tuple[str, ...] = ()
    read_at_start: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    shim: str = ""
    socket: str = ""


@dataclass(frozen=True)
class Distribution(Engine):
    """The containerd of a distribution of Kubernetes.

    It writes ``config``, or ``agent/etc/containerd/config.toml`` below its ``data_folder``, or that of its
    ``settings``. ``version_question`` are the words after its program, and ``client`` those with which its ``ctr`` is
    called, each way until one is there.
    """

    settings: str = ""
    data_folder: str = ""
    config: str = ""
    version_question: tuple[str, ...] = ("--version",)
    client: tuple[tuple[str, ...], ...] = ()


_RANCHER_SOCKET = "/run/k3s/containerd/containerd.sock"
_MICROK8S_SOCKET = "/var/snap/microk8s/common/run/containerd.sock"
_OF_CONTAINERD = (
    "/var/lib/containerd",
    "/opt/containerd",
    "/opt/cni",
    "/etc/cni",
    "/etc/containerd",
    "/run/containerd",
)
CONTAINERD = Engine(
    "containerd",
    ("containerd",),
    ("containerd.service",),
    packages=(
        "containerd",
        "containerd-stable",
        "containerd.io",
        "containernetworking-plugins",
        "runc",
        "runc-stable",
    ),
    folder="/etc/containerd",
    main="/etc/containerd/config.toml",
    is_shared=True,
    question=("--config", "/etc/containerd/config.toml", "config", "dump"),
    drop_ins="/etc/containerd/conf.d",
    ours=(f"{OWN_FOLDER}/base-spec.json",),
    marked=("/etc/containerd/conf.d/99-nvidia.toml",),
    read_at_start=(f"{OWN_FOLDER}/",),
    data=_OF_CONTAINERD,
    shim="containerd-shim",
    socket="/run/containerd/containerd.sock",
)
CRIO = Engine(
    "crio",
    ("crio",),
    ("crio.service",),
    packages=("cri-o",),
    folder="/etc/crio",
    main="/etc/crio/crio.conf",
    question=("config",),
    drop_ins="/etc/crio/crio.conf.d",
    reads_any_name=True,  # filepath.Walk in pkg/config/config.go
    ours=("/etc/containers/oci/hooks.d/99-grapnel.json",),
    marked=("/etc/crio/crio.conf.d/99-nvidia.conf",),
    # It makes the two folders of settings when it starts. Its images are Podman's as well, wherever both are.
    data=("/etc/crio", "/etc/crio/auth", "/etc/crio/policies", "/run/crio", "/var/lib/crio"),
    shim="conmon",
    socket="/run/crio/crio.sock",
)
DOCKER = Engine(
    "docker",
    ("dockerd",),  # Docker's client may be there without it, and the other way round
    ("docker.service",),
    reloads=True,
    packages=("docker", "docker-ce", "docker.io"),
    folder="/etc/docker",
    main="/etc/docker/daemon.json",
    is_shared=True,
    question=("--validate", "--config-file", "/etc/docker/daemon.json"),
    too_old="unknown flag: --validate",  # before 23
    watched=("/usr/local/sbin/nvidia-container-runtime-hook",),
    data=(*_OF_CONTAINERD, "/var/lib/docker", "/etc/docker", "/run/docker"),
    groups=("docker",),
)
PODMAN = Engine(
    "podman",
    ("podman",),
    packages=("podman",),
    ours=("/usr/share/containers/oci/hooks.d/99-grapnel.json",),
    shim="conmon",
)
K3S = Distribution(
    "k3s",
    ("/usr/local/bin/k3s", "/usr/bin/k3s", "/opt/bin/k3s"),
    ("k3s.service", "k3s-agent.service"),
    socket=_RANCHER_SOCKET,
    settings="/etc/rancher/k3s/config.yaml",
    data_folder="/var/lib/rancher/k3s",
    client=(("{program}", "ctr"),),
)
RKE2 = Distribution(
    "rke2",
    ("/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/bin/rke2"),
    ("rke2-server.service", "rke2-agent.service"),
    socket=_RANCHER_SOCKET,
    settings="/etc/rancher/rke2/config.yaml",
    data_folder="/var/lib/rancher/rke2",
    client=(("{data}/bin/ctr", "--address", _RANCHER_SOCKET),),
)
K0S = Distribution(
    "k0s",
    ("/usr/local/bin/k0s", "/usr/bin/k0s"),
    ("k0sworker.service", "k0scontroller.service"),
    socket="/run/k0s/containerd.sock",
    config="/etc/k0s/containerd.toml",
    version_question=("version",),
    client=(("{program}", "ctr"),),
)
MICROK8S = Distribution(
    "microk8s",
    ("/snap/bin/microk8s", "/var/lib/snapd/snap/bin/microk8s"),
    ("snap.microk8s.daemon-containerd.service",),
    socket=_MICROK8S_SOCKET,
    config="/var/snap/microk8s/current/args/containerd.toml",
    version_question=("version",),
    client=(("/snap/microk8s/current/bin/ctr", "--address", _MICROK8S_SOCKET),),
)
ENGINES = {each.name: each for each in (CONTAINERD, CRIO, DOCKER, PODMAN, K3S, RKE2, K0S, MICROK8S)}
DISTRIBUTIONS = {name: each for name, each in ENGINES.items() if isinstance(each, Distribution)}
UNITS = tuple(unit for each in ENGINES.values() for unit in each.units)
