"""Staging on a booted node: real apt, dpkg, dkms, compiler and modinfo; the module is a small one of the lab's."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lab.kmod.build import SOURCE
from lab.nodes import NodeSpec, Site
from tests.worker import of_this_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes import Node

pytestmark = pytest.mark.nodes

UTILS = Path(__file__).parents[3] / "playbooks" / "plugins" / "module_utils"
SCRIPT = Path(__file__).with_name("on_node.py")
CODE = "opt/staging"
HOME = "/var/lib/grapnel/driver"
OLD, NEW = "560.28.03", "560.35.03"
DKMS_CONF = """\
PACKAGE_NAME="nvidia-lab"
PACKAGE_VERSION="{version}"
BUILT_MODULE_NAME[0]="nvidia"
DEST_MODULE_LOCATION[0]="/updates/dkms"
MAKE[0]="make VERSION={version} RELEASE=${{kernelver}}"
AUTOINSTALL="yes"
"""
MAKEFILE = """\
nvidia.ko: module.c
\tgcc -std=gnu11 -Wall -Werror -c -o $@ $< \\
-DNAME='"nvidia"' -DVERSION='"$(VERSION)"' -DSRCVERSION='"0123456789ABCDEF0123456"' -DDEPENDS='""' \\
-DVERMAGIC='"$(RELEASE) SMP preempt mod_unload modversions "' -DLICENSE='"NVIDIA"' -DEXPORTS='"nvidia_lab_core"'
"""
POSTINST = """\
#!/bin/sh
set -e
[ "$1" != configure ] || /usr/lib/dkms/common.postinst nvidia-lab {version} /usr/share/nvidia-lab-dkms "" "$2"
"""
PRERM = "#!/bin/sh\nset -e\ndkms remove -m nvidia-lab -v {version} --all || :\n"
BUILD = (
    "dpkg-deb --root-owner-group --build /srv/made/{name} /srv/extra/{name}.deb >/dev/null && rm -r /srv/made/{name}"
)
STATE = (
    "dpkg-query -W; lsmod; dkms status; find /lib/modules /usr/src /etc /var/lib/dkms -xdev -type f ! -name 'mok.*' "
    "-printf '%p %s %m\\n' | sort; find /etc -newer /srv/extra/Packages -type f"
)


class Staging:
    """A builder node with a source of its own beside the lab's: a driver of a library and a small module, twice."""

    def __init__(self, node: Node) -> None:
        self.node = node
        shutil.copytree(UTILS, node.root / CODE / "ansible_collections/grapnel/node/plugins/module_utils")
        shutil.copy(SCRIPT, node.root / CODE)
        (node.root / "srv/extra").mkdir()
        stanzas = []
        for version in (OLD, NEW):
            stanzas += [self._library(version), self._module(version)]
        (node.root / "srv/extra/Packages").write_text("\n".join(stanzas))
        self.use_source("deb [trusted=yes] file:/srv/extra ./\n")

    def use_source(self, line: str) -> None:
        """Write the node's second source and read it."""
        (self.node.root / "etc/apt/sources.list.d/extra.list").write_text(line)
        self.node.run(["apt-get", "-qq", "update"], timeout_s=120)

    def _library(self, version: str) -> str:
        return self._package("liblab", version, {"usr/lib/liblab": version}, "Depends: pciutils\n")

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

    def _package(self, name: str, version: str, files: dict[str, str], more: str) -> str:
        control = (
            f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: lab <lab@grapnel.invalid>\n"
            f"{more}Description: a part of a driver\n"
        )
        full = f"{name}_{version}_amd64"
        for path, text in {"DEBIAN/control": control, **files}.items():
            place = self.node.root / f"srv/made/{full}" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            place.chmod(0o755 if path.startswith("DEBIAN/p") else 0o644)
        self.node.run(["sh", "-ec", BUILD.format(name=full)], timeout_s=60)
        content = (self.node.root / f"srv/extra/{full}.deb").read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        return f"{control}Filename: ./{full}.deb\nSize: {len(content)}\nSHA256: {digest}\n"

    def change(self, version: str, **values: Any) -> str:  # noqa: ANN401 - keys of a document
        document = {
            "schema": "grapnel.dev/driver-change/v1alpha1",
            "version": version,
            "flavour": "proprietary",
            "manager": "apt",
            "packages": [{"name": name, "version": version} for name in ("liblab", "nvidia-lab-dkms")],
            "remove": [],
            "files": [{"path": "/etc/modprobe.d/lab.conf", "content": f"# {version}\n", "mode": "0644"}],
            "hold": True,
            "kernels": [self.node.kernel_release],
            "dkms": "nvidia-lab",
            "services": [],
            "sign": None,
            "compile": "stage",
            "reboot": False,
            "module": {"version": version},
        }
        return json.dumps(document | values)

    def run(self, verb: str, change: str) -> dict[str, Any]:
        done = self.node.run(["python3", f"/{CODE}/on_node.py", verb, f"/{CODE}"], input_text=change, timeout_s=280)
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def staged(self, change: str) -> Path:
        """Stage a change, hold that to success, and return the folder of the set."""
        answer = self.run("stage", change)
        assert answer["complete"], answer
        assert answer["findings"] == [], answer["findings"]
        return Path(f"{self.node.root}{HOME}/staged/{answer['id']}")

    def refused(self, change: str) -> dict[str, str]:
        """Stage a change that cannot be staged, and return the finding."""
        answer = self.run("stage", change)
        assert not answer["complete"], answer
        finding: dict[str, str] = answer["findings"][0]
        return finding

    def forget(self) -> None:
        """Remove what was staged, so that nothing of it is used again."""
        self.node.run(["sh", "-c", f"rm -rf {HOME}/staged/*"])

    def state(self) -> str:
        return self.node.run(["sh", "-c", STATE], timeout_s=60).stdout


@pytest.fixture(scope="module")
def staging() -> Iterator[Staging]:
    site = Site(of_this_worker("staging"))
    site.destroy()
    try:
        yield Staging(site.up(NodeSpec("n1", gpus=1, builder=True)))
    finally:
        site.destroy()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_first_driver_is_built_without_a_trace_on_the_node(staging: Staging) -> None:
    before = staging.state()

    folder = staging.staged(staging.change(OLD))

    assert staging.state() == before
    assert names(folder / "modules") == [f"{staging.node.kernel_release}.tar.gz"]
    packages = names(folder / "packages")
    assert f"liblab_{OLD}_amd64.deb" in packages
    assert any(name.startswith("pciutils_") for name in packages), "what the node lacks comes along"
    back = json.loads((folder / "before/change.json").read_text())
    assert {"liblab", "nvidia-lab-dkms", "pciutils"} <= set(back["remove"])
    assert back["version"] == ""
    assert staging.run("check", staging.change(OLD)) == {"findings": []}


def test_a_kill_in_the_middle_of_a_build_is_made_good(staging: Staging) -> None:
    change = staging.change(OLD, hold=False)
    place = staging.node.root / "srv/change.json"
    place.write_text(change)
    kill = (
        f"python3 /{CODE}/on_node.py stage /{CODE} < /srv/change.json & P=$!; "
        "for i in $(seq 600); do pgrep -x dkms >/dev/null && break; sleep 0.05; done; "
        "kill -9 $P; pkill -9 -x dkms; wait"
    )

    staging.forget()
    staging.node.run(["bash", "-c", kill], timeout_s=120, check=False)
    left_over = [path.name for path in (staging.node.root / HOME.lstrip("/") / "staged").iterdir()]
    left = staging.run("check", change)
    folder = staging.staged(change)

    assert left_over == [f".new-{folder.name}"], "the build was cut off in the middle"
    assert [one["code"] for one in left["findings"]] == ["not-staged"]
    assert names(folder.parent) == [folder.name]


def test_an_upgrade_keeps_the_installed_driver_with_its_built_module(staging: Staging) -> None:
    apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "install", "--no-install-recommends"]
    staging.node.run([*apt, f"nvidia-lab-dkms={OLD}", f"liblab={OLD}"], timeout_s=240)
    staging.node.run(["apt-mark", "hold", "liblab"])
    before = staging.state()

    folder = staging.staged(staging.change(NEW))

    assert staging.state() == before
    back = json.loads((folder / "before/change.json").read_text())
    assert (back["version"], back["dkms"], back["flavour"]) == (OLD, "nvidia-lab", "proprietary")
    assert back["kernels"] == [staging.node.kernel_release]
    assert names(folder / "before/packages") == [f"liblab_{OLD}_amd64.deb", f"nvidia-lab-dkms_{OLD}_amd64.deb"]
    assert names(folder / "before/modules") == [f"{staging.node.kernel_release}.tar.gz"]
    assert json.loads((folder / "before/holds.json").read_text()) == {"held": ["liblab"]}


def test_the_archive_is_what_dkms_installs_without_a_compiler(staging: Staging) -> None:
    folder = staging.staged(staging.change(NEW))
    place, kernel = f"/{folder.relative_to(staging.node.root)}", staging.node.kernel_release

    staging.node.run(["dpkg-deb", "--extract", f"{place}/packages/nvidia-lab-dkms_{NEW}_amd64.deb", "/"])
    staging.node.run(["dkms", "ldtarball", "--archive", f"{place}/modules/{kernel}.tar.gz"])
    shown = staging.node.run(["dkms", "status", "-m", "nvidia-lab", "-v", NEW, "-k", kernel]).stdout
    staging.node.run(["dkms", "remove", "-m", "nvidia-lab", "-v", NEW, "--all"])
    staging.node.run(["rm", "-r", f"/usr/src/nvidia-lab-{NEW}"])

    assert f"nvidia-lab/{NEW}, {kernel}, x86_64: built" in shown


def test_a_compiler_that_fails_is_quoted(staging: Staging) -> None:
    gcc = staging.node.root / "usr/local/bin/gcc"
    gcc.write_text("#!/bin/sh\necho 'module.c:7: error: no member named magic' >&2\nexit 1\n")
    gcc.chmod(0o755)
    staging.forget()
    before = staging.state()
    try:
        finding = staging.refused(staging.change(NEW))
    finally:
        gcc.unlink()

    assert finding["code"] == "build-failed", finding
    assert "module.c:7: error: no member named magic" in finding["message"]
    assert staging.state() == before


def test_a_source_that_lost_its_packages_is_named(staging: Staging) -> None:
    lost = staging.node.root / "srv/lost"
    lost.mkdir()
    shutil.copy(staging.node.root / "srv/extra/Packages", lost)
    staging.use_source("deb [trusted=yes] file:/srv/lost ./\n")
    try:
        finding = staging.refused(staging.change(NEW, hold=False, files=[]))
    finally:
        staging.use_source("deb [trusted=yes] file:/srv/extra ./\n")

    assert finding["code"] == "package-gone", finding
    assert f"_{NEW}_amd64.deb" in finding["message"]


def test_a_version_that_no_source_has_is_named(staging: Staging) -> None:
    finding = staging.refused(staging.change("570.1"))

    assert finding["code"] == "package-not-found"
    assert "liblab 570.1" in finding["message"]


def test_a_kernel_without_headers_is_told_before_anything_is_built(staging: Staging) -> None:
    finding = staging.refused(staging.change(NEW, kernels=["6.99.0-amd64"]))

    assert finding["code"] == "build-tools-missing", finding
    assert "linux-headers-6.99.0-amd64" in finding["message"]


def test_staging_goes_on_while_a_process_keeps_a_gpu_open(staging: Staging) -> None:
    """On a node of its own, whose driver is the lab's: user space comes, and nothing that is loaded or open changes."""
    node = Site(of_this_worker("staging")).up(NodeSpec("n2", gpus=2, driver_module="550.163.01"))
    shutil.copytree(UTILS, node.root / CODE / "ansible_collections/grapnel/node/plugins/module_utils")
    shutil.copy(SCRIPT, node.root / CODE)
    node.run(["apt-get", "-qq", "update"], timeout_s=120)
    node.run(["systemd-run", "--unit=holder", "sh", "-c", "exec sleep 1000 < /dev/nvidia0"])
    held = "lsmod; systemctl show holder --property MainPID,ActiveState"
    before = node.run(["sh", "-c", held]).stdout
    version = "550.163.01-2"
    packages = [{"name": name, "version": version} for name in ("libnvidia-ml1", "nvidia-alternative")]
    packages.append({"name": "nvidia-legacy-check", "version": version})
    none = {"flavour": "none", "kernels": [], "dkms": None, "module": None, "files": []}
    change = json.loads(staging.change("550.163.01")) | none | {"packages": packages}

    done = node.run(
        ["python3", f"/{CODE}/on_node.py", "stage", f"/{CODE}"], input_text=json.dumps(change), timeout_s=200
    )

    assert json.loads(done.stdout)["complete"], done.stdout
    assert node.run(["sh", "-c", held]).stdout == before
    assert "ActiveState=active" in before
