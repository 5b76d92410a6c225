"""A driver of a library and a small kernel module, in two versions, in a package source of a booted node's own."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab.kmod.build import SOURCE

if TYPE_CHECKING:
    from lab.nodes import Node

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

    def change(self, version: str, **values: Any) -> str:
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
