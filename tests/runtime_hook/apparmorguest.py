"""Runs in the virtual machine that has AppArmor: containers with an engine's profile by a real runc, and our hook.

Prints one line `RESULT {...}` for each container, and `FACTS {...}`: what the collection tells of this machine.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

CONTAINERS = Path("/var/lib/containers")
HOOK = "/usr/lib/grapnel/releases/hook-test/grapnel-hook"
NODES = {"nvidia0": 16, "nvidia1": 17, "nvidiactl": 62, "nvidia-uvm": 60, "nvidia-uvm-tools": 59}
LOOK = (
    "cat /proc/self/attr/current; for name in nvidia0 nvidiactl; do (: </dev/$name) 2>/dev/null "
    "&& (: <>/dev/$name) 2>/dev/null && echo opened $name; done; ls /dev; ls /proc/driver/nvidia; "
    "/bin/probe libcuda.so.1; mount -t tmpfs none /tmp || echo no mount"
)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def sh(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    say(f"$ {command} -> {done.returncode} {done.stdout}{done.stderr}")
    return done.stdout


def run(name: str, *, given: bool, profile: str) -> None:
    """Run a container of a profile; the hook is asked for a GPU where one is ``given``."""
    bundle = CONTAINERS / name
    bundle.mkdir()
    arguments = ["grapnel-hook", "prestart", "--config", "/etc/grapnel/hook.json", "--root", "/host"]
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/sh", "-c", LOOK],
            "env": ["PATH=/bin:/usr/bin", *(["NVIDIA_VISIBLE_DEVICES=0"] if given else [])],
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {kind: ["CAP_SYS_ADMIN"] for kind in ("bounding", "effective", "permitted")},
            "apparmorProfile": profile,
        },
        "root": {"path": str(CONTAINERS / "root")},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        ],
        "hooks": {"prestart": [{"path": HOOK, "args": arguments, "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}]},
        "linux": {
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))
    command = ["runc", "--root", "/run/runc", "run", "--bundle", str(bundle), name]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    say("RESULT " + json.dumps({"name": name, "status": done.returncode, "lines": lines}))


def tell_facts() -> None:
    """Say what the collection tells of this machine, with the kernel's log in the place of auditd's."""
    Path("/var/log/audit").mkdir(exist_ok=True)
    sh("dmesg > /var/log/audit/audit.log")
    sys.path.insert(0, "/collection")
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host  # noqa: PLC0415 - it is there now
    from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import (  # noqa: PLC0415 - it is there now
        read_apparmor,
    )

    say("FACTS " + json.dumps(read_apparmor(Host())))


def main() -> None:
    sh("cat /sys/module/apparmor/parameters/enabled /sys/kernel/security/lsm")
    for name, minor in NODES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(4, minor))
    sh("mount --bind /dev /host/dev; mkdir /run/runc /run/grapnel")
    sh("mount --bind /var/lib/containers/root /var/lib/containers/root")  # as an engine's are: a mount of its own
    sh("apparmor_parser --replace /etc/apparmor.d/runc /containers.profile /narrow.profile")
    run("given", given=True, profile="cri-containerd.apparmor.d")
    run("not-given", given=False, profile="cri-containerd.apparmor.d")
    tell_facts()
    run("narrow", given=True, profile="narrow")
    tell_facts()
    sh("dmesg | grep apparmor; cat /proc/uptime")


if __name__ == "__main__":
    main()
