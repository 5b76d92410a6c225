"""A booted node with the driver program and a small driver in two versions, built with DKMS or packaged ready-made."""

from __future__ import annotations

import json
import shlex
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.kmod.build import SOURCE
from lab.nodes import NodeSpec, Site
from provision.planning.supply.payload.archive import write_archive
from provision.planning.supply.payload.sources import find_sources
from tests.playbooks.staging.small_driver import NEW, OLD, POSTINST, PRERM, Staging
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.nodes import Node

ROOT = Path(__file__).parents[3]
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
HOME = "/var/lib/grapnel/driver"
SETTINGS = "/etc/modprobe.d/lab.conf"
SERVICE = "nvidia-persistenced.service"
TIMEOUT_S = 280
LIBRARY_FOLDER = "usr/lib/x86_64-linux-gnu"
DKMS_CONF = """\
PACKAGE_NAME="nvidia-lab"
PACKAGE_VERSION="{version}"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
BUILT_MODULE_NAME[1]="nvidia-uvm"
DEST_MODULE_LOCATION[1]="/updates/dkms"
MAKE[0]="make VERSION={version} RELEASE=${{kernelver}}"
AUTOINSTALL="yes"
"""
MAKEFILE = """\
CC = gcc -std=gnu11 -Wall -Werror -c -DVERSION='"$(VERSION)"' -DSRCVERSION='"0123456789ABCDEF0123456"' \\
-DVERMAGIC='"$(RELEASE) SMP preempt mod_unload modversions "' -DLICENSE='"NVIDIA"'
all: nvidia.ko nvidia-uvm.ko
nvidia.ko: module.c
\t$(CC) -DNAME='"nvidia"' -DDEPENDS='""' -DEXPORTS='"nvidia_lab_core"' -o $@ $<
nvidia-uvm.ko: module.c
\t$(CC) -DNAME='"nvidia_uvm"' -DDEPENDS='"nvidia"' -DIMPORTS=nvidia_lab_core -o $@ $<
"""
LINK_LIBRARY = f"ln -sf libcuda.so.{{version}} /{LIBRARY_FOLDER}/libcuda.so.1\n"
# The program, scripts of packages, and depmod stop where they are told to, so that the power is cut just there.
CUT_AT, REACHED = "/run/cut-at", "/run/cut-reached"
STOPPING_SCRIPT = f"""\
#!/bin/sh
set -e
if [ "$(cat {CUT_AT} 2>/dev/null)" = "$DPKG_MAINTSCRIPT_PACKAGE.$DPKG_MAINTSCRIPT_NAME" ]; then
    mv {CUT_AT} {REACHED}
    sleep 1000
fi
"""
STOPPING_DEPMOD = f"""\
#!/bin/sh
[ "$(cat {CUT_AT} 2>/dev/null)" != depmod ] || {{ mv {CUT_AT} {REACHED}; sleep 1000; }}
exec /usr/sbin/depmod "$@"
"""
STOPPING_JOURNAL = f"""

def _write_and_stop(self, step, state, detail="", write=Journal.write):
    write(self, step, state, detail)
    try:
        with open("{CUT_AT}") as place:
            is_here = place.read() == step
    except FileNotFoundError:
        return
    if is_here:
        os.rename("{CUT_AT}", "{REACHED}")
        time.sleep(1000)


Journal.write = _write_and_stop
"""
RUN_TO_CUT = """\
rm -f {reached}; printf %s {place} > {at}
rm -f /run/ended
{{ code=0; {command} >/run/said 2>&1 </dev/null || code=$?; echo $code > /run/ended; }} >/dev/null 2>&1 &
until [ -e {reached} ]; do [ ! -e /run/ended ] || {{ cat /run/ended /run/said; exit 3; }}; sleep 0.05; done
"""
KILL_UNIT = """\
systemctl kill --signal=KILL --kill-whom=all grapnel-driver.service
wait; cat /run/ended /run/said
"""
# It has a GPU open, so that the module cannot be unloaded before it is stopped. systemd would refuse its sixth start:
# with its default, ten seconds, only where a machine is quick enough for so many swaps.
PERSISTENCE_UNIT = """\
[Unit]
ConditionPathExists=/dev/nvidia0
StartLimitIntervalSec=1h
[Service]
ExecStart=sleep infinity
StandardInput=file:/dev/nvidia0
[Install]
WantedBy=multi-user.target
"""
# Says that the newer driver's GPU does not answer.
BROKEN_SMI = f"""\
#!/bin/sh
[ "$(cat /sys/module/nvidia/version)" != {NEW} ] && echo "GPU 0: lab (UUID: GPU-0)"
"""


class DrivenNode(Staging):
    """A node whose source has a driver of a library and two modules, in two versions, and the program."""

    names = ("liblab", "nvidia-lab-dkms")
    differs: dict[str, Any] = {"services": [SERVICE]}  # noqa: RUF012 - a constant, which no test changes

    def _library(self, version: str) -> str:
        files = {
            f"{LIBRARY_FOLDER}/libcuda.so.{version}": version,
            f"usr/lib/systemd/system/{SERVICE}": PERSISTENCE_UNIT,
            "usr/lib/lab/blob": version * (100_000 if version == NEW else 1),
            **self._scripts(postinst=LINK_LIBRARY.format(version=version)),
        }
        return self._package("liblab", version, files, "")

    def _scripts(self, **ends: str) -> dict[str, str]:
        """Return all scripts that a package can have; each stops where it is told to, and some do something then."""
        names = ("preinst", "postinst", "prerm", "postrm")
        return {f"DEBIAN/{name}": STOPPING_SCRIPT + ends.get(name, "") for name in names}

    def _module(self, version: str) -> str:
        place = f"usr/src/nvidia-lab-{version}"
        files = {
            f"{place}/dkms.conf": DKMS_CONF.format(version=version),
            f"{place}/Makefile": MAKEFILE,
            f"{place}/module.c": (SOURCE / "module.c").read_text(),
            **self._scripts(postinst=POSTINST.format(version=version), prerm=PRERM.format(version=version)),
        }
        return self._package("nvidia-lab-dkms", version, files, f"Depends: dkms, liblab (= {version})\n")

    def change(self, version: str, **values: Any) -> str:
        packages = [{"name": name, "version": version} for name in self.names]
        return super().change(version, **{"packages": packages, **self.differs, **values})

    def call(self, *words: str, given: str | None = None) -> dict[str, Any]:
        """Run a verb that answers with a document, whatever its exit code."""
        done = self.node.run([PROGRAM, *words], check=False, timeout_s=TIMEOUT_S, input_text=given)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def prepare(self, version: str, **values: Any) -> str:
        """Stage a change, hold that to success, and return its name."""
        answer = self.call("stage", given=self.change(version, **values))
        assert answer["complete"], answer
        return str(answer["id"])

    def swap(self, identifier: str) -> dict[str, Any]:
        """Return the record of a swap."""
        return dict(self.call("swap", identifier)["run"])

    def back(self) -> dict[str, Any]:
        """Return the record of the way back, by hand."""
        return dict(self.call("back")["run"])

    def sh(self, script: str) -> str:
        """Run a script that must not fail; returns what it prints."""
        return self.node.run(["sh", "-ec", script], timeout_s=120).stdout

    def cut(self, place: str, *words: str) -> None:
        """Have the program do something, and kill its unit at a place.

        That is a step of the journal, ``PACKAGE.SCRIPT`` of dpkg, or ``depmod``.
        """
        done = self.sh(self._to_cut(place, words) + KILL_UNIT)
        assert done.startswith("1\n"), done
        assert "has ended without a result" in done, done

    def cut_power(self, place: str, *words: str) -> None:
        """Have the program do something, and the whole node lose its power there; boot it again."""
        self.sh(self._to_cut(place, words))
        self.node.cut()
        self.node.start()
        self.node.wait_ready()

    def _to_cut(self, place: str, words: Sequence[str]) -> str:
        command = shlex.join([PROGRAM, *words])
        return RUN_TO_CUT.format(command=command, place=place, reached=REACHED, at=CUT_AT)

    def break_smi(self) -> None:
        """Have every verification of the newer driver fail."""
        smi = self.node.root / "usr/bin/nvidia-smi"
        smi.write_text(BROKEN_SMI)
        smi.chmod(0o755)

    def assert_has(self, version: str) -> None:
        """Hold the node to a driver in service: packages, holds, loaded modules and those on disk, library, files."""
        found = self.sh(
            f"dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Abbrev}}\\n' {' '.join(self.names)}; "
            "dpkg --audit; echo held $(apt-mark showhold); cat /sys/module/nvidia/version "
            "/sys/module/nvidia_uvm/version; modinfo --field version nvidia nvidia_uvm; "
            f"readlink /{LIBRARY_FOLDER}/libcuda.so.1; cat {SETTINGS}; systemctl is-active {SERVICE}; "
            f"ls /etc/dkms | grep -x no-autoinstall || :; ls {HOME}/restore.json {HOME}/reserve 2>/dev/null || :"
        )
        assert found.splitlines() == [
            *(f"{name} {version} hi " for name in self.names),
            f"held {' '.join(self.names)}",
            *[version] * 4,
            f"libcuda.so.{version}",
            f"# {version}",
            "active",
        ], found


class PackagedNode(DrivenNode):
    """The same with modules that come built in a package, as distributions have them: nothing for DKMS to do."""

    names = ("liblab", "nvidia-lab-modules")
    differs: dict[str, Any] = {"services": [SERVICE], "dkms": None}  # noqa: RUF012 - a constant, as above

    def _module(self, version: str) -> str:
        kernel = self.node.kernel_release
        made = self.node.root / f"srv/made/nvidia-lab-modules_{version}_amd64"
        place = made / f"usr/lib/modules/{kernel}/extra"
        place.mkdir(parents=True)
        for name, text in {"Makefile": MAKEFILE, "module.c": (SOURCE / "module.c").read_text()}.items():
            (place / name).write_text(text)
        inside = f"/srv/made/{made.name}/usr/lib/modules/{kernel}/extra"
        self.sh(f"make -s -C {inside} VERSION={version} RELEASE={kernel}; rm {inside}/Makefile {inside}/module.c")
        files = self._scripts(postinst=f"depmod {kernel}\n", postrm=f"depmod {kernel}\n")
        return self._package(made.name.partition("_")[0], version, files, f"Depends: liblab (= {version})\n")


@contextmanager
def driven_node(kind: type[DrivenNode], site_name: str, folder: Path) -> Iterator[DrivenNode]:
    """Boot a node, install the program, and have it bring the older driver."""
    site = Site(of_this_worker(site_name))
    site.destroy()
    try:
        made = kind(_boot(site, folder))
        assert made.swap(made.prepare(OLD))["state"] == "done"
        made.assert_has(OLD)
        yield made
    finally:
        site.destroy()


def _boot(site: Site, folder: Path) -> Node:
    node = site.up(NodeSpec("n1", gpus=1, builder=True))
    archive, _ = write_archive(folder, "driver", find_sources(ROOT).driver_entries())
    home = node.root / str(Path(PROGRAM).parent).lstrip("/")
    home.mkdir(parents=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(home)], check=True)
    with (home / "ansible_collections/grapnel/node/plugins/module_utils/driver/record/journal.py").open("a") as journal:
        journal.write(STOPPING_JOURNAL)
    depmod = node.root / "usr/local/sbin/depmod"
    depmod.write_text(STOPPING_DEPMOD)
    depmod.chmod(0o755)
    (node.root / "etc/modules-load.d/nvidia.conf").write_text("nvidia\nnvidia-uvm\n")  # as udev does it
    # Indexing thousands of modules and packing an initial RAM disk with every swap would prove nothing.
    node.run(["sh", "-c", f"rm -rf /boot/initrd.img-* /lib/modules/{node.kernel_release}/kernel"])
    return node
