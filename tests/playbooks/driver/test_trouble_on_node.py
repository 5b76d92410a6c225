"""The program in trouble on a booted node: real apt, dpkg, dkms, sign-file and systemd, with a small driver.

Each test begins with the older driver in service and leaves it so: whatever goes wrong, the node has one of the two
drivers, verified, or says why not, and a later run converges.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.driver.run import STEPS

from lab.kmod.build import SOURCE
from lab.nodes import NodeSpec, Site
from provision.payload.archive import write_archive
from provision.payload.sources import find_sources
from tests.playbooks.staging.small_driver import NEW, OLD, POSTINST, PRERM, Staging
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lab.nodes import Node

pytestmark = pytest.mark.nodes

ROOT = Path(__file__).parents[3]
PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver"
HOME = "/var/lib/grapnel/driver"
SETTINGS = "/etc/modprobe.d/lab.conf"
TIMEOUT_S = 280
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
LIBRARY_POSTINST = """\
#!/bin/sh
ln -sf libcuda.so.{version} /usr/lib/x86_64-linux-gnu/libcuda.so.1
"""
# Says that the newer driver's GPU does not answer.
BROKEN_SMI = f"""\
#!/bin/sh
[ "$(cat /sys/module/nvidia/version)" != {NEW} ] && echo "GPU 0: lab (UUID: GPU-0)"
"""
# Runs the program as its unit does, and is killed the moment a step is announced in the journal.
KILLED = """\
import os, signal, sys
sys.path.insert(0, "/usr/lib/grapnel/driver")
from ansible_collections.grapnel.node.plugins.module_utils.driver import journal, program
step, words, write = sys.argv[1], sys.argv[2:], journal.Journal.write
def written(self, name, state, detail=""):
    write(self, name, state, detail)
    if (name, state) == (step, "begin"):
        os.kill(os.getpid(), signal.SIGKILL)
journal.Journal.write = written
sys.exit(program.main(["run", *words]))
"""


class Driven(Staging):
    """A node whose source has a driver of a library and two modules, in two versions, and the program."""

    def _library(self, version: str) -> str:
        files = {
            f"usr/lib/x86_64-linux-gnu/libcuda.so.{version}": version,
            "usr/lib/lab/blob": version * (100_000 if version == NEW else 1),
            "DEBIAN/postinst": LIBRARY_POSTINST.format(version=version),
        }
        return self._package("liblab", version, files, "")

    def _module(self, version: str) -> str:
        place = f"usr/src/nvidia-lab-{version}"
        files = {
            f"{place}/dkms.conf": DKMS_CONF.format(version=version),
            f"{place}/Makefile": MAKEFILE,
            f"{place}/module.c": (SOURCE / "module.c").read_text(),
            "DEBIAN/postinst": POSTINST.format(version=version),
            "DEBIAN/prerm": PRERM.format(version=version),
        }
        return self._package("nvidia-lab-dkms", version, files, f"Depends: dkms, liblab (= {version})\n")

    def call(self, *words: str, given: str | None = None) -> dict[str, Any]:
        done = self.node.run([PROGRAM, *words], check=False, timeout_s=TIMEOUT_S, input_text=given)
        assert done.stdout, done.stderr
        return dict(json.loads(done.stdout))

    def prepare(self, version: str, **values: Any) -> str:  # noqa: ANN401 - keys of a document
        """Stage a change, hold that to success, and return its name."""
        answer = self.call("stage", given=self.change(version, **values))
        assert answer["complete"], answer
        return str(answer["id"])

    def swap(self, identifier: str) -> dict[str, Any]:
        """Return the record of a swap."""
        return dict(self.call("swap", identifier)["run"])

    def back(self) -> dict[str, Any]:
        return dict(self.call("back")["run"])

    def kill(self, step: str, words: Sequence[str]) -> bool:
        """Run the program until a step begins; tells whether there was one."""
        done = self.node.run(["python3", "/opt/killed.py", step, *words], check=False, timeout_s=TIMEOUT_S)
        return done.returncode not in (0, 1)

    def sh(self, script: str) -> str:
        return self.node.run(["sh", "-ec", script], timeout_s=120).stdout

    def assert_has(self, version: str, *, held: bool = True) -> None:
        shown = self.sh("dpkg-query -W -f '${Package} ${Version} ${db:Status-Abbrev}\\n' liblab nvidia-lab-dkms")
        mark = "hi" if held else "ii"
        assert shown.splitlines() == [f"{name} {version} {mark} " for name in ("liblab", "nvidia-lab-dkms")]
        assert self.sh("cat /sys/module/nvidia/version /sys/module/nvidia_uvm/version").split() == [version] * 2
        assert self.sh("modinfo --field version nvidia").strip() == version
        assert self.sh("readlink /usr/lib/x86_64-linux-gnu/libcuda.so.1").strip() == f"libcuda.so.{version}"
        assert self.sh(f"cat {SETTINGS}") == f"# {version}\n"
        assert self.sh("ls /etc/dkms").split().count("no-autoinstall") == 0


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    site = Site(of_this_worker("trouble"))
    site.destroy()
    try:
        made = site.up(NodeSpec("n1", gpus=1, builder=True))
        archive, _ = write_archive(tmp_path_factory.mktemp("driver"), "driver", find_sources(ROOT).driver_entries())
        home = made.root / str(Path(PROGRAM).parent).lstrip("/")
        home.mkdir(parents=True)
        subprocess.run(["tar", "-xf", str(archive), "-C", str(home)], check=True)
        (made.root / "opt").mkdir(exist_ok=True)
        (made.root / "opt/killed.py").write_text(KILLED)
        # Indexing thousands of modules and packing an initial RAM disk with every swap would prove nothing.
        made.run(["sh", "-c", f"rm -rf /boot/initrd.img-* /lib/modules/{made.kernel_release}/kernel"])
        yield made
    finally:
        site.destroy()


@pytest.fixture(scope="module")
def installed(node: Node) -> Driven:
    """The node with the older driver, brought there by the program."""
    made = Driven(node)
    assert made.swap(made.prepare(OLD))["state"] == "done"
    made.assert_has(OLD)
    return made


@pytest.fixture
def driven(installed: Driven) -> Iterator[Driven]:
    """The node with the older driver in service, before the test and after it."""
    installed.assert_has(OLD)
    yield installed
    installed.sh("rm -rf /run/gpusim/fail /usr/bin/nvidia-smi /etc/depmod.d/lab.conf")
    if installed.sh("cat /sys/module/nvidia/version").strip() != OLD:
        assert installed.swap(installed.prepare(OLD))["state"] == "done"
    installed.assert_has(OLD)


def test_a_disk_that_is_full_when_packages_are_unpacked_leads_back(driven: Driven) -> None:
    identifier = driven.prepare(NEW)
    driven.sh("mount -t tmpfs -o size=64k tmpfs /usr/lib/lab")

    record = driven.swap(identifier)
    driven.sh("umount /usr/lib/lab")
    driven.assert_has(OLD)
    again = driven.swap(identifier)

    assert record["state"] == "returned", record
    assert record["reason"].startswith("packages: the disk is full: ")
    assert "No space left on device" in record["reason"]
    assert again["state"] == "done", again


def test_a_full_disk_of_the_store_is_refused_before_anything_is_disturbed(driven: Driven) -> None:
    identifier = driven.prepare(NEW)
    driven.sh(f"cp -a {HOME} /srv/store; mount -t tmpfs -o size=64m,mode=0700 tmpfs {HOME}; cp -a /srv/store/. {HOME}/")
    driven.sh(f"cat /dev/zero > {HOME}/somebody.log || :")

    done = driven.node.run([PROGRAM, "swap", identifier], check=False, timeout_s=TIMEOUT_S)
    driven.sh(f"umount {HOME}; rm -r /srv/store")

    assert done.returncode == 1
    assert f"no-space: {HOME} has no room" in done.stderr
    driven.assert_has(OLD)


def test_a_module_that_the_kernel_refuses_is_a_quarantine_that_ends_with_the_cause(driven: Driven) -> None:
    identifier = driven.prepare(NEW)
    driven.sh("mkdir -p /run/gpusim/fail; echo 129 > /run/gpusim/fail/nvidia")

    refused = driven.swap(identifier)
    driven.sh("rm -r /run/gpusim/fail")
    after = driven.swap(identifier)

    assert refused["state"] == "quarantined", refused
    assert "Key was rejected by service (the kernel does not have the certificate" in refused["reason"]
    assert "going back failed at back-load" in refused["reason"]
    assert after["state"] == "done", after
    driven.assert_has(NEW)


def test_another_module_that_comes_first_is_named(driven: Driven) -> None:
    identifier, kernel = driven.prepare(NEW), driven.node.kernel_release
    place = f"/lib/modules/{kernel}/somebody"
    driven.sh(f"mkdir {place}; cp $(modinfo --field filename nvidia) {place}/")
    driven.sh("echo search somebody updates/dkms built-in > /etc/depmod.d/lab.conf")

    refused = driven.swap(identifier)
    driven.sh(f"rm -r {place} /etc/depmod.d/lab.conf; depmod {kernel}")
    after = driven.swap(identifier)

    assert refused["state"] == "returned", refused
    assert f"kernel {kernel} lacks the module {NEW} (proprietary) on disk, it has {OLD}" in refused["reason"]
    assert after["state"] == "done", after


def test_libraries_that_somebody_upgraded_alone_are_found_and_staged_again(driven: Driven) -> None:
    identifier = driven.prepare(NEW)
    driven.sh(f"dpkg --force-depends -i /srv/extra/liblab_{NEW}_amd64.deb 2>/dev/null")

    refused = driven.swap(identifier)
    again = driven.call("stage", given=driven.change(NEW))
    mixed = driven.swap(str(again["id"]))

    assert refused["state"] == "done", refused  # the library is what the change wants, the module is not yet
    assert mixed["state"] == "done", mixed
    driven.assert_has(NEW)


def test_packages_that_somebody_holds_change_and_are_held_again_by_the_way_back(driven: Driven) -> None:
    identifier = driven.prepare(NEW, hold=False)
    driven.sh("apt-mark unhold nvidia-lab-dkms; apt-mark hold liblab")
    identifier = driven.prepare(NEW, hold=False)

    record = driven.swap(identifier)
    held = driven.sh("apt-mark showhold").split()
    back = driven.back()
    held_back = driven.sh("apt-mark showhold").split()
    driven.sh("apt-mark hold liblab nvidia-lab-dkms")

    assert (record["state"], back["state"]) == ("done", "done"), (record, back)
    assert (held, held_back) == ([], ["liblab"]) or (held, held_back) == (["liblab"], ["liblab"])


@pytest.mark.parametrize("damage", ["truncate -s 0", "sed -i s/^Package:/Pack\\\\0age/", "sed -i 200q"])
def test_a_damaged_database_is_refused_and_nothing_is_disturbed(driven: Driven, damage: str) -> None:
    identifier, status = driven.prepare(NEW), "/var/lib/dpkg/status"
    driven.sh(f"cp -a {status} /srv/status; {damage} {status}")

    refused = driven.swap(identifier)
    staged = driven.call("stage", given=driven.change(NEW, hold=False))
    driven.sh(f"cp -a /srv/status {status}")
    driven.assert_has(OLD)
    after = driven.swap(identifier)

    assert refused["state"] == "failed", refused
    assert not staged["complete"], staged
    assert after["state"] == "done", after


def test_a_kernel_that_was_installed_meanwhile_is_refused(driven: Driven) -> None:
    identifier = driven.prepare(NEW)
    driven.sh("mkdir -p /lib/modules/9.9.9-amd64; touch /boot/vmlinuz-9.9.9-amd64")

    refused = driven.swap(identifier)
    driven.sh("rm -r /lib/modules/9.9.9-amd64 /boot/vmlinuz-9.9.9-amd64")

    assert refused["state"] == "failed", refused
    assert refused["reason"].startswith("kernel-not-staged: the kernel 9.9.9-amd64 was installed after")
    driven.assert_has(OLD)


def test_modules_are_signed_with_the_site_s_key_and_with_no_other(driven: Driven) -> None:
    own, stranger = (f"/etc/keys/{name}" for name in ("own", "stranger"))
    req = "openssl req -new -x509 -newkey rsa:2048 -nodes -days 2 -subj '/CN=Site Operations/' -outform DER 2>/dev/null"
    make = f"{req} -keyout $k.key -out $k.der; chmod 600 $k.key"
    driven.sh(f"mkdir -m 700 -p /etc/keys; for k in {own} {stranger}; do {make}; done")
    sign = {"key": f"{own}.key", "certificate": f"{own}.der"}
    config = driven.node.root / "etc/dkms/framework.conf.d/other.conf"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"mok_signing_key={stranger}.key\nmok_certificate={stranger}.der\n")

    forged = driven.call("stage", given=driven.change(NEW, sign=sign))
    config.unlink()
    identifier = driven.prepare(NEW, sign=sign)
    record = driven.swap(identifier)
    signer = driven.sh("modinfo --field signer nvidia").strip()
    kept = driven.sh(f"grep -rl 'PRIVATE KEY' {HOME} /var/log /var/lib/dkms/nvidia-lab || :")
    driven.sh("rm -r /etc/keys")

    assert [one["code"] for one in forged["findings"]] == ["module-unfit"], forged
    assert f"is not signed by the key of {own}.der" in forged["findings"][0]["message"]
    assert record["state"] == "done", record
    assert signer == "Site Operations"
    assert kept == ""


@pytest.mark.timeout(1500)
def test_a_power_cut_at_every_step_of_a_swap_and_of_the_way_back_is_made_good(driven: Driven) -> None:
    identifier = driven.prepare(NEW)
    for step in ("run", "repair", "check", *(name for name, _ in STEPS), "adopt", "initramfs"):
        assert driven.kill(step, ["swap", identifier]), step
        record = driven.swap(identifier)
        assert (record["state"], record["reason"]) == ("done", ""), step
        driven.assert_has(NEW)

        assert driven.kill(step, ["back"]), step
        record = driven.back()
        assert record["state"] == "done", (step, record)
        driven.assert_has(OLD)


@pytest.mark.timeout(1500)
def test_a_power_cut_at_every_step_of_a_return_is_made_good(driven: Driven) -> None:
    identifier = driven.prepare(NEW)
    smi = driven.node.root / "usr/bin/nvidia-smi"
    smi.write_text(BROKEN_SMI)
    smi.chmod(0o755)
    for step in (f"back-{name}" for name, _ in STEPS):
        assert driven.kill(step, ["swap", identifier]), step

        record = driven.swap(identifier)

        assert record["state"] == "returned", (step, record)
        assert record["reason"].startswith("verify: nvidia-smi fails with 1"), step
        driven.assert_has(OLD)
