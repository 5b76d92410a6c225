"""Lists which files of the NVIDIA driver belong to which driver capability.

Sources: the library lists of NVIDIA's libnvidia-container (``src/nvc_info.c``) for utility, compute, video, graphics
and ngx; what its container toolkit adds for CDI (``pkg/nvcdi``, ``internal/discover``) for the rest.

Where the two differ: of X, the modules and settings belong to ``display`` (the toolkit gives them to everyone), and
``compat32`` is no capability of a file: 32-bit libraries keep the capability of their 64-bit twins. Left out: the
client libraries of drivers before GLVND (435), and those that GLVND itself brings (``libGL.so.1``).
"""

# Real files are named <stem>.so.<driver version>. Two graphics cores need what is compute's otherwise: a library that
# stands in two lists is in the inventory once per capability.
LIBRARY_STEMS = {
    "utility": ("libnvidia-ml", "libnvidia-cfg", "libnvidia-nscq"),
    "compute": (
        "libcuda",
        "libcudadebugger",
        "libnvidia-opencl",
        "libnvidia-gpucomp",
        "libnvidia-ptxjitcompiler",
        "libnvidia-fatbinaryloader",
        "libnvidia-allocator",
        "libnvidia-compiler",
        "libnvidia-pkcs11",
        "libnvidia-pkcs11-openssl3",
        "libnvidia-nvvm",
        "libnvidia-tileiras",
    ),
    "video": ("libvdpau_nvidia", "libnvidia-encode", "libnvidia-opticalflow", "libnvcuvid"),
    "graphics": (
        "libGLX_nvidia",
        "libEGL_nvidia",
        "libGLESv2_nvidia",
        "libGLESv1_CM_nvidia",
        "libnvidia-eglcore",
        "libnvidia-glcore",
        "libnvidia-tls",
        "libnvidia-glsi",
        "libnvidia-fbc",
        "libnvidia-ifr",
        "libnvidia-rtcore",
        "libnvoptix",
        "libnvidia-glvkspirv",
        "libnvidia-cbl",
        "libnvidia-present",
        "libnvidia-vulkan-producer",
        "libnvidia-gpucomp",
        "libnvidia-allocator",
    ),
    "ngx": ("libnvidia-ngx",),
}

# Libraries whose files have a version of their own: <stem>.so.<digits and dots>.
OWN_VERSION_STEMS = {
    "compute": ("libnvidia-nvvm70",),
    "graphics": (
        "libnvidia-egl-gbm",
        "libnvidia-egl-wayland",
        "libnvidia-egl-wayland2",
        "libnvidia-egl-xcb",
        "libnvidia-egl-xlib",
    ),
}

# Where a library's loader looks for it: a subfolder of the library folder, on the host and in the container.
SUBFOLDERS = {"libvdpau_nvidia": "vdpau"}

# Programs look for these development links even where the host has none.
ALWAYS_LINKED_STEMS = ("libcuda", "libnvidia-opticalflow", "libnvidia-vulkan-producer")

# Links that are no library's own name: the stem they need, subfolder, name, target. {version} is the driver's.
LINKS = {
    "graphics": (
        ("libGLX_nvidia", "", "libGLX_indirect.so.0", "libGLX_nvidia.so.{version}"),
        ("libnvidia-allocator", "gbm", "nvidia-drm_gbm.so", "../libnvidia-allocator.so.1"),
    ),
}

BINARY_NAMES = {
    "utility": (
        "nvidia-smi",
        "nvidia-debugdump",
        "nvidia-persistenced",
        "nv-fabricmanager",
        "nvidia-imex",
        "nvidia-imex-ctl",
    ),
    "compute": ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server"),
    "display": ("nvidia-xconfig",),
}
# The last one is where installers for images that are read-only put a driver (Google's for COS).
BINARY_FOLDERS = (
    "/usr/bin",
    "/usr/sbin",
    "/usr/lib/nvidia/current",
    "/usr/lib64/nvidia/bin",
    "/usr/local/nvidia/bin",
)

# Settings: where the container has them, and what is looked for in CONFIG_FOLDERS. {machine} is uname's.
CONFIG_FOLDERS = ("/etc", "/usr/local/share", "/usr/share")
CONFIGS = {
    "compute": (("/etc", "OpenCL/vendors/nvidia.icd"),),
    "graphics": (
        ("/usr/share", "glvnd/egl_vendor.d/10_nvidia.json"),
        ("/usr/share", "egl/egl_external_platform.d/15_nvidia_gbm.json"),
        ("/usr/share", "egl/egl_external_platform.d/10_nvidia_wayland.json"),
        ("/usr/share", "egl/egl_external_platform.d/09_nvidia_wayland2.json"),
        ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xcb.json"),
        ("/usr/share", "egl/egl_external_platform.d/20_nvidia_xlib.json"),
        ("/usr/share", "nvidia/nvoptix.bin"),
        ("/etc", "vulkan/icd.d/nvidia_icd.json"),
        ("/etc", "vulkan/icd.d/nvidia_layers.json"),
        ("/etc", "vulkan/icd.d/nvidia_icd.{machine}.json"),
        ("/etc", "vulkan/implicit_layer.d/nvidia_layers.json"),
    ),
    "display": (
        ("/usr/share", "X11/xorg.conf.d/10-nvidia.conf"),
        ("/usr/share", "X11/xorg.conf.d/nvidia-drm-outputclass.conf"),
    ),
}
# Google's images for GKE keep Vulkan's settings here.
VULKAN_FALLBACK_FOLDER = "/"

# Modules of the X server: file names on the host and in the container, which has them in the same folder, so that a
# ModulePath in the settings stays true. {version} is the driver's.
X_MODULES = (("nvidia_drv.so", "nvidia_drv.so"), ("libglxserver_nvidia.so.{version}", "libglxserver_nvidia.so"))
X_FOLDERS = (
    "nvidia/xorg",
    "xorg/modules/drivers",
    "xorg/modules/extensions",
    "xorg/modules/updates/drivers",
    "xorg/modules/updates/extensions",
)
X_ROOTS = ("/usr/lib", "/usr/lib64", "/usr/X11R6/lib", "/usr/X11R6/lib64")
# Debian keeps extensions beside its programs and leads the X server there by alternatives, which a container has not.
X_DEBIAN_FOLDER, X_USUAL_FOLDER = "/usr/lib/nvidia/current", "/usr/lib/xorg/modules/extensions"

# Nothing in user space reads the GSP's firmware; tools that report its version look for the file.
FIRMWARE_CAPABILITY = "utility"

# Of running services: path, capability. The first two are sockets; MPS has a folder, which must be root's own, as
# anybody may make folders in /tmp and the container gets it writable.
SERVICE_SOCKETS = (
    ("/run/nvidia-persistenced/socket", "utility"),
    ("/run/nvidia-fabricmanager/socket", "utility"),
)
MPS_FOLDER, MPS_CAPABILITY = "/tmp/nvidia-mps", "compute"  # NVIDIA's own place for it

# Without these a capability is useless: (SONAME, the distribution's usual package).
REQUIRED_SONAMES = {
    "utility": ("libnvidia-ml.so.1", "libnvidia-ml1"),
    "compute": ("libcuda.so.1", "libcuda1"),
}

# Control nodes by kind.
CONTROL_NODES = {
    "ctl": "/dev/nvidiactl",
    "uvm": "/dev/nvidia-uvm",
    "uvm-tools": "/dev/nvidia-uvm-tools",
    "modeset": "/dev/nvidia-modeset",
}

# Control nodes of which a host has any number: kind, folder, beginning of the name (digits follow) or whole name.
CONTROL_FAMILIES = (
    ("nvidia-fs", "/dev", "nvidia-fs"),
    ("gdrdrv", "/dev", "gdrdrv"),
    ("infiniband", "/dev/infiniband", "uverbs"),
    ("infiniband", "/dev/infiniband", "rdma_cm"),
    ("nvswitch", "/dev", "nvidia-nvswitchctl"),
    ("nvswitch", "/dev", "nvidia-nvswitch"),
)

# Seen again at every container's start, so that what comes later is noticed: the first of families that have no folder
# of their own, and the folders of the others.
FIRST_OF_FAMILY = ("/dev/nvidia-fs0", "/dev/gdrdrv", "/dev/nvidia-nvswitchctl")
FAMILY_FOLDERS = ("/dev/nvidia-caps", "/dev/nvidia-caps-imex-channels", "/dev/dri", "/dev/infiniband")

# The names in /proc/devices under which a kind's major may stand. Kinds that are not here are not held against it: the
# kernel itself makes and removes their nodes. GDRCopy's is made by its scripts and outlives the module (its insmod.sh).
MAJOR_NAMES = {
    "gpu": ("nvidia", "nvidia-frontend"),
    "ctl": ("nvidiactl", "nvidia", "nvidia-frontend"),
    "modeset": ("nvidia-modeset", "nvidia", "nvidia-frontend"),
    "uvm": ("nvidia-uvm",),
    "uvm-tools": ("nvidia-uvm",),
    "mig-config": ("nvidia-caps",),
    "mig-monitor": ("nvidia-caps",),
    "mig": ("nvidia-caps",),
    "imex": ("nvidia-caps-imex-channels",),
    "nvswitch": ("nvidia-nvswitch",),
    "gdrdrv": ("gdrdrv",),
}
LISTED_WORDS = ("nvidia", "gdrdrv")  # one is in each of those names
