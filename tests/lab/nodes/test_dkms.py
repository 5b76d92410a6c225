"""dkms on a booted node: the real program builds a module with a real compiler, and the node's kernel takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.kmod.build import SOURCE

if TYPE_CHECKING:
    from lab.nodes import Node

pytestmark = pytest.mark.nodes

VERSION = "560.35.03"  # newer than the module that is there: dkms does not replace by an older one
PLACE = f"/usr/src/nvidia-current-{VERSION}"
CONFIGURATION = f"""\
PACKAGE_NAME="nvidia-current"
PACKAGE_VERSION="{VERSION}"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make VERSION={VERSION} RELEASE=${{kernelver}}"
AUTOINSTALL="yes"
"""
MAKEFILE = """\
nvidia.ko: module.c
\tgcc -std=gnu11 -Wall -Werror -c -o $@ $< \
-DNAME='"nvidia"' -DVERSION='"$(VERSION)"' -DSRCVERSION='"0123456789ABCDEF0123456"' -DDEPENDS='""' \
-DVERMAGIC='"$(RELEASE) SMP preempt mod_unload modversions "' -DLICENSE='"NVIDIA"' -DEXPORTS='"nvidia_lab_core"'
"""


@pytest.fixture(scope="module")
def built(node: Node) -> Node:
    """The node after dkms has built and installed the module for the kernel that it runs."""
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-y", "install", "--no-install-recommends"]
    node.run(["apt-get", "-q", "update"])
    node.run([*apt, "dkms", "gcc", "make"], timeout_s=240)
    headers = (
        "mkdir -p /lib/modules/$(uname -r)/build/include"  # dkms asks for the folder; nothing here includes from it
    )
    node.run(["sh", "-c", f"{headers} && mkdir {PLACE}"])
    texts = {"dkms.conf": CONFIGURATION, "Makefile": MAKEFILE, "module.c": (SOURCE / "module.c").read_text()}
    for name, text in texts.items():
        node.run(["tee", f"{PLACE}/{name}"], input_text=text)
    node.run(["dkms", "install", f"nvidia-current/{VERSION}"], timeout_s=120)
    return node


def test_dkms_builds_for_the_kernel_that_the_node_runs(built: Node) -> None:
    release = built.run(["uname", "-r"]).stdout.strip()

    status = built.run(["dkms", "status"]).stdout

    assert f"nvidia-current/{VERSION}, {release}, x86_64: installed" in status
    assert "/updates/dkms/nvidia.ko" in built.run(["modinfo", "-F", "filename", "nvidia"]).stdout


def test_the_built_module_takes_the_place_of_the_loaded_one(built: Node) -> None:
    built.run(["modprobe", "-r", "nvidia-drm", "nvidia-uvm", "nvidia"])

    built.run(["modprobe", "nvidia"])

    assert built.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == VERSION
    assert VERSION in built.run(["cat", "/proc/driver/nvidia/version"]).stdout


def test_a_removed_module_leaves_the_one_that_was_there_before(built: Node) -> None:
    built.run(["rmmod", "nvidia"], check=False)

    built.run(["dkms", "remove", f"nvidia-current/{VERSION}", "--all"])
    built.run(["modprobe", "nvidia"])

    assert VERSION not in built.run(["dkms", "status"]).stdout
    assert built.run(["cat", "/sys/module/nvidia/version"]).stdout.strip() == "550.163.01"
