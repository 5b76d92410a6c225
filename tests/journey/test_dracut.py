"""A Debian node whose initial RAM disk is dracut's: what it has of the driver's settings, and when it is written again.

Real: Debian's dracut and initramfs-tools, kernel, dpkg, the driver's packages and modules; the disk is unpacked and
started under QEMU with the kernel that it is for. Of the kernel's modules there are few, and of dracut's own.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from lab import modules
from lab.nodes import NodeSpec, Site, microvm
from lab.tools import dracut
from tests.journey.conftest import VERSION, Controller
from tests.journey.dkms import Operator, stage_item
from tests.worker import of_this_worker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator
    from pathlib import Path

    from lab.nodes import Node

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(900)]

NAME = "dracut"
OPTIONS, OF_DRACUT = "/etc/modprobe.d/grapnel-nvidia.conf", "/etc/dracut.conf.d/grapnel-nvidia.conf"
DECLARATION = f"""\
apiVersion: grapnel.dev/v1alpha1
kind: GpuStack
spec:
  driver: {{version: "{VERSION}", companions: [], moduleParameters: {{NVreg_EnableMSI: 1}}}}
  runtime: {{enabled: false}}
  plugin: {{enabled: false}}
"""
# Nouveau is left, with what it needs. The disk has it, as where there is plymouth, and is not packed: that takes time.
PREPARED = """
rm -f /boot/initrd.img-*
cd /usr/lib/modules/"$(uname -r)"
KEPT=$(grep /nouveau.ko modules.dep | tr -d : | tr ' ' '\\n')
find kernel -name '*.ko.xz' | grep -v -x -F "$KEPT" | xargs rm
depmod -a
touch /boot/initrd.img-"$(uname -r)"
mkdir -p /etc/dracut.conf.d
cat > /etc/dracut.conf.d/lab.conf <<END
dracutmodules=" dash base kernel-modules drm "
compress="cat"
do_strip="no"
END
"""
INSTALL = "cd /srv/dracut; apt-get -q -y --no-install-recommends install "
# What udev does for a GPU that it finds.
LOOK = """
modprobe -b pci:v000010DEd000020B5sv000010DEsd00001533bc03sc02i00
while read -r name rest; do echo "loaded $name"; done < /proc/modules
cat /etc/modprobe.d/grapnel-nvidia.conf
echo end
"""
PROGRAM = "/usr/lib/grapnel/driver"
REBUILD = f"""
import sys
sys.path.insert(0, "{PROGRAM}")
from ansible_collections.grapnel.node.plugins.module_utils.driver.initramfs import rebuild
from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host
print(rebuild(Host()))
"""


@dataclass
class Boot:
    """The initial RAM disk of a node's kernel."""

    node: Node

    @property
    def path(self) -> Path:
        return self.node.root / f"boot/initrd.img-{self.node.kernel_release}"

    @property
    def stamp(self) -> tuple[int, int]:
        """What is another one once the disk was written again."""
        found = self.path.stat()
        return found.st_ino, found.st_mtime_ns

    def count_writes(self) -> None:
        """Have dracut note each time that it is started from here on; it reads its settings as a shell."""
        node = self.node.root
        (node / "etc/dracut.conf.d/zz-count.conf").write_text("echo >> /run/dracut-started\n")
        (node / "run/dracut-started").unlink(missing_ok=True)

    def writes(self) -> int:
        return len((self.node.root / "run/dracut-started").read_text().splitlines())

    def names(self) -> list[str]:
        """Return the files that the disk has of modprobe's settings, and of nouveau."""
        listed = self.node.run(["lsinitrd", f"/boot/{self.path.name}"], timeout_s=120).stdout
        paths = (line.split()[-1] for line in listed.splitlines() if line.startswith("-"))
        return sorted(path for path in paths if "modprobe.d/" in path or "nouveau" in path)

    def text(self, path: str) -> str:
        return self.node.run(["lsinitrd", "-f", path.lstrip("/"), f"/boot/{self.path.name}"], timeout_s=120).stdout

    def said(self) -> str:
        """Start the kernel with the disk, and return what it says of the modules for a GPU."""
        kernel = self.node.root / f"boot/vmlinuz-{self.node.kernel_release}"
        said = microvm.boot_disk(kernel, self.path, LOOK, timeout_s=300)
        assert said.endswith("end\n"), said
        return said


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Operator]:
    """Who changes the driver of a node that has initramfs-tools, and dracut's program beside it."""
    site = Site(of_this_worker(NAME))
    site.destroy()
    tmp_path.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    binds = ((str(dracut.ensure()), "/srv/dracut"),)
    try:
        node = site.up(NodeSpec(NAME, suite=dracut.SUITE, gpus=1, builder=True, binds=binds))
        node.run(["sh", "-e", "-c", PREPARED])
        beside = f"$(ls ./*.deb | grep -v ^./{dracut.PACKAGE}_)"
        node.run(["sh", "-e", "-c", INSTALL + beside], timeout_s=300)
        yield Operator(node, Controller(tmp_path, timeout_s=600))
    finally:
        site.destroy()


def planned(operator: Operator) -> tuple[str, set[str]]:
    """Return what a plan says that writes the disks, and what it writes."""
    plan = operator.plan()
    (tool,) = (one["value"] for one in plan["derived"] if one["key"] == "driver.initramfs")
    return tool, {item["target"] for item in plan["items"] if item["action"] == "write"}


def is_outdated(operator: Operator) -> bool:
    """Tell whether a plan of nothing says that the disk has former settings."""
    plan = operator.plan()
    assert plan["items"] == []
    return "initramfs-outdated" in [one["code"] for one in plan["warnings"]]


def rebuild(node: Node, before: str = "") -> subprocess.CompletedProcess[str]:
    """Have the disk written again by the program, as a driver change does at its end."""
    script = f"{before}\nexec /usr/bin/python3 -c {shlex.quote(REBUILD)}"
    return node.run(["sh", "-e", "-c", script], check=False, timeout_s=300)


def test_dracuts_disk_has_what_a_node_has_of_the_drivers_settings(operator: Operator) -> None:
    disk = Boot(operator.node)
    beside_initramfs_tools_the_program_dracut_does_not_count(operator)
    what_dracut_writes_by_itself_loads_nouveau(operator, disk)
    an_applied_driver_keeps_nouveau_out_of_the_early_user_space(operator, disk)
    a_second_apply_writes_nothing(operator, disk)
    what_a_kernels_package_has_written_has_the_settings_too(operator, disk)
    where_there_is_no_room_for_another_one_the_disk_stays(operator, disk)
    a_dracut_that_is_killed_leaves_the_disk_and_the_next_one_nothing_else(operator, disk)
    a_removed_driver_leaves_a_disk_without_its_settings(operator, disk)


def beside_initramfs_tools_the_program_dracut_does_not_count(operator: Operator) -> None:
    operator.controller.folder.joinpath("grapnel.yaml").write_text(DECLARATION)
    tool, written = planned(operator)
    assert tool == "initramfs-tools"
    assert OPTIONS in written
    assert OF_DRACUT not in written


def what_dracut_writes_by_itself_loads_nouveau(operator: Operator, disk: Boot) -> None:
    """That is why it is told: Debian's dracut has nothing of /etc/modprobe.d in its disks."""
    (operator.node.root / "etc/modprobe.d/site.conf").write_text("blacklist nouveau\n")
    operator.node.run(["sh", "-e", "-c", f"{INSTALL} ./{dracut.PACKAGE}_*.deb"], timeout_s=300)

    tool, written = planned(operator)
    assert tool == "dracut"
    assert {OPTIONS, OF_DRACUT} <= written
    assert not [name for name in disk.names() if "site.conf" in name]
    assert "loaded nouveau\n" in disk.said()
    (operator.node.root / "etc/modprobe.d/site.conf").unlink()


def an_applied_driver_keeps_nouveau_out_of_the_early_user_space(operator: Operator, disk: Boot) -> None:
    archive = modules.archive(VERSION, "proprietary", operator.node.kernel_release)
    modules.hand_over(operator.node, stage_item(operator.plan()), archive)

    disk.count_writes()

    done = operator.apply()

    assert done.returncode == 0, done.stdout + done.stderr
    assert disk.writes() == 1
    settings = operator.node.run(["cat", OPTIONS]).stdout
    assert "NVreg_EnableMSI=1" in settings
    assert disk.text(OPTIONS) == settings
    assert [name for name in disk.names() if name.startswith("etc/")] == [OPTIONS.lstrip("/")]
    said = disk.said()
    assert "loaded nouveau\n" not in said
    assert said.endswith(f"{settings}end\n")


def a_second_apply_writes_nothing(operator: Operator, disk: Boot) -> None:
    stamp = disk.stamp
    assert operator.plan()["items"] == []

    done = operator.apply()

    assert done.returncode == 0, done.stdout + done.stderr
    assert disk.stamp == stamp


def what_a_kernels_package_has_written_has_the_settings_too(operator: Operator, disk: Boot) -> None:
    stamp = disk.stamp
    operator.node.run(["run-parts", "--arg", operator.node.kernel_release, "/etc/kernel/postinst.d"], timeout_s=300)
    assert disk.stamp != stamp
    assert disk.text(OPTIONS) == operator.node.run(["cat", OPTIONS]).stdout


def where_there_is_no_room_for_another_one_the_disk_stays(operator: Operator, disk: Boot) -> None:
    """Dracut removed it: the node could not boot any more."""
    room = disk.path.stat().st_size * 3 // 2 // 1024
    small = f"mkdir /tmp/boot; mount -t tmpfs -o size={room}k boot /tmp/boot; cp -a /boot/initrd.img-* /tmp/boot"
    moved = "mount --bind /tmp/boot /boot; umount /tmp/boot"
    look = "sha256sum /boot/initrd.img-*; ls -A /boot"
    before = operator.node.run(["sh", "-e", "-c", f"{small}; {moved}; {look}"]).stdout

    assert not is_outdated(operator)
    (operator.node.root / OPTIONS.lstrip("/")).touch()  # as a change does that ends so

    done = rebuild(operator.node)

    assert done.returncode == 1
    assert f"the initramfs of kernel {operator.node.kernel_release} could not be rebuilt" in done.stderr
    assert "No space left on device" in done.stderr
    assert operator.node.run(["sh", "-c", look]).stdout == before
    operator.node.run(["umount", "/boot"])
    assert is_outdated(operator)


def a_dracut_that_is_killed_leaves_the_disk_and_the_next_one_nothing_else(operator: Operator, disk: Boot) -> None:
    """What it leaves is in a folder of grapnel's, which the next run empties first."""
    stamp = disk.stamp
    killed = rebuild(operator.node, "echo 'kill -KILL 0' > /etc/dracut.conf.d/zz-lab.conf")
    assert killed.returncode != 0
    operator.node.run(["rm", "/etc/dracut.conf.d/zz-lab.conf"])
    assert disk.stamp == stamp
    (operator.node.root / "boot/.grapnel").mkdir(exist_ok=True)
    (operator.node.root / f"boot/.grapnel/{disk.path.name}").write_text("half")

    done = rebuild(operator.node)

    assert (done.returncode, done.stdout) == (0, f"{operator.node.kernel_release}\n"), done.stderr
    assert disk.stamp != stamp
    assert not (operator.node.root / "boot/.grapnel").exists()
    assert not is_outdated(operator)


def a_removed_driver_leaves_a_disk_without_its_settings(operator: Operator, disk: Boot) -> None:
    stamp = disk.stamp

    disk.count_writes()

    done = operator.grapnel("remove", "--driver", "--yes", "--no-cluster")

    assert done.returncode == 0, done.stdout + done.stderr
    assert disk.writes() == 1
    assert disk.stamp != stamp
    assert not [name for name in disk.names() if "grapnel" in name or "nvidia" in name]
    left = operator.node.run(["ls", "/etc/dracut.conf.d", "/etc/modprobe.d"]).stdout
    assert "grapnel" not in left
    assert "lab.conf" in left
