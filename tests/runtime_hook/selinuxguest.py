"""Runs in the virtual machine that enforces SELinux: containers of type `container_t` by a real runc, and our hook.

Prints one line `RESULT {...}` for each container, and `FACTS {...}`: what the collection tells of this machine.
`MAY {...}` is what the kernel's policy allows whom, as the kernel itself tells it.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

CONTAINERS = Path("/var/lib/containers")
RELEASE = "/usr/lib/grapnel/releases/hook-test"
HOOK = f"{RELEASE}/grapnel-hook"
LOOK = (
    "for name in nvidia0 nvidiactl; do (: </dev/$name) 2>/dev/null && (: <>/dev/$name) 2>/dev/null "
    "&& echo opened $name; done;"
    "ls /dev; /bin/probe libcuda.so.1"
)
SOCKET = Path("/run/grapnel/node.sock")
ACCESS = Path("/sys/fs/selinux/access")
NODES = {"nvidia0": 16, "nvidia1": 17, "nvidiactl": 62, "nvidia-uvm": 60, "nvidia-uvm-tools": 59}
POLICY = "etc/selinux/default"
# What starts an engine on an installed system: systemd, in a domain that the engine's program is left to.
AS_INIT = '#!/bin/sh\nexec /as-engine "$@"\n'
AS_SERVICE = '#!/bin/sh\nexec "$@"\n'
AS_ENGINE = '#!/bin/sh\n{ "$@"; echo "status $?"; } </dev/null 2>&1 | cat > /var/lib/containers/out\n'


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def sh(command: str) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    say(f"$ {command} -> {done.returncode} {done.stdout}{done.stderr}")
    return done.stdout


def prepare() -> None:
    for name, minor in NODES.items():
        os.mknod(f"/dev/{name}", stat.S_IFCHR | 0o666, os.makedev(4, minor))
    programs = (
        ("as-init", AS_INIT, "init_exec_t"),
        ("as-service", AS_SERVICE, "init_exec_t"),
        ("as-engine", AS_ENGINE, "container_engine_exec_t"),
    )
    for name, text, label in programs:
        Path(f"/{name}").write_text(text)
        Path(f"/{name}").chmod(0o755)
        sh(f"chcon -t {label} /{name}")
    sh("mount --bind /dev /host/dev; restorecon -F /run; mkdir /run/runc /run/grapnel")  # as systemd does
    sh("restorecon -RF /dev /run /usr/lib/grapnel /etc/grapnel")
    sh("chcon -R -t lib_t /host/proc /host/sys; chcon -t root_t /host")
    sh(f"setfiles -F -r /host /{POLICY}/contexts/files/file_contexts /host/usr /host/etc")
    sh("restorecon -RF /var/lib/containers")
    sh("chcon -R system_u:object_r:container_file_t:s0:c1,c2 /var/lib/containers/root")
    sh("mount --bind /var/lib/containers/root /var/lib/containers/root")  # as an engine's are: a mount of its own


def allow(node: str) -> dict[str, object]:
    return {"allow": True, "type": "c", "major": 4, "minor": NODES[node], "access": "rw"}


def run(name: str, command: str, *, given: str = "", hook: str = HOOK) -> None:
    """Run a container; one that is ``given`` a GPU has it from the hook, or (``bound``) the host's own nodes."""
    bundle = CONTAINERS / name
    bundle.mkdir()
    environment = ["PATH=/bin:/usr/bin", *(["NVIDIA_VISIBLE_DEVICES=0"] if given == "hook" else [])]
    arguments = ["grapnel-hook", "prestart", "--config", "/etc/grapnel/hook.json", "--root", "/host"]
    bound = ["nvidia0", "nvidiactl"] if given == "bound" else []
    config = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": 0, "gid": 0},
            "args": ["/bin/sh", "-c", command],
            "env": environment,
            "cwd": "/",
            "noNewPrivileges": True,
            "capabilities": {kind: ["CAP_CHOWN", "CAP_MKNOD"] for kind in ("bounding", "effective", "permitted")},
            "selinuxLabel": "system_u:system_r:container_t:s0:c1,c2",
        },
        "root": {"path": "/var/lib/containers/root"},
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            *({"destination": f"/dev/{each}", "source": f"/dev/{each}", "options": ["bind"]} for each in bound),
        ],
        "hooks": {"prestart": [{"path": hook, "args": arguments, "env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]}]},
        "linux": {
            "mountLabel": "system_u:object_r:container_file_t:s0:c1,c2",
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts", "network")],
            "resources": {"devices": [{"allow": False, "access": "rwm"}, *map(allow, bound)]},
        },
    }
    (bundle / "config.json").write_text(json.dumps(config))
    sh(f"/as-init runc --root /run/runc run --bundle {bundle} {name}")
    *said, status = (CONTAINERS / "out").read_text().strip().splitlines()
    say("RESULT " + json.dumps({"name": name, "status": status, "lines": said}))


def ask_daemon(name: str) -> None:
    """Start the daemon's end of its socket as systemd does, and ask it as the hook does: in an engine's domain."""
    SOCKET.unlink(missing_ok=True)
    server = subprocess.Popen(["/as-service", f"{RELEASE}/grapnel-node"], stdin=subprocess.DEVNULL)
    while server.poll() is None and not SOCKET.exists():
        time.sleep(0.1)
    domain = Path(f"/proc/{server.pid}/attr/current").read_text().strip("\0\n")
    label = os.getxattr(SOCKET, "security.selinux").decode().strip("\0")
    sh(f"/as-init {RELEASE}/grapnel-ask")
    said = (CONTAINERS / "out").read_text().strip().splitlines()
    server.terminate()
    server.wait()
    say("RESULT " + json.dumps({"name": name, "lines": said[:-1], "domain": domain, "label": label}))


def tell_may() -> None:
    """Say what the kernel's policy allows containers and engines of the daemon's socket, and of other services."""
    wanted = {
        f"{who} {what}": allowed(f"system_u:system_r:{who}:s0", target, kind, what)
        for who in ("container_t", "container_engine_t", "spc_t")
        for target, kind, what in (
            ("system_u:system_r:initrc_t:s0", "unix_stream_socket", "connectto"),
            ("system_u:object_r:grapnel_socket_t:s0", "sock_file", "write"),
            ("system_u:object_r:grapnel_socket_t:s0", "sock_file", "unlink"),
        )
    }
    say("MAY " + json.dumps(wanted))


def allowed(who: str, target: str, kind: str, what: str) -> bool:
    classes = Path("/sys/fs/selinux/class", kind)
    with ACCESS.open("r+b", buffering=0) as asked:
        asked.write(f"{who} {target} {(classes / 'index').read_text()}".encode())
        bits = int(asked.read(4096).split()[0], 16)
    return bool(bits >> (int((classes / "perms" / what).read_text()) - 1) & 1)


def tell_facts() -> None:
    """Say what the collection tells of this machine, with the kernel's log in the place of auditd's."""
    Path("/var/log/audit").mkdir(exist_ok=True)
    sh("dmesg > /var/log/audit/audit.log")
    sys.path.insert(0, "/collection")
    from ansible_collections.grapnel.node.plugins.module_utils.machine.host import Host  # noqa: PLC0415 - it is there now
    from ansible_collections.grapnel.node.plugins.module_utils.machine.selinux import (  # noqa: PLC0415 - it is there now
        read_selinux,
    )

    say("FACTS " + json.dumps(read_selinux(Host())))


def load(policy: str) -> None:
    """Load a policy with its labels for files, and label the nodes by it."""
    shutil.copytree(f"{policy}/{POLICY}", f"/{POLICY}", dirs_exist_ok=True)
    sh(f"load_policy; restorecon -RF /dev/nvidia* {RELEASE}; ls -Z /dev/nvidia0 {HOOK}")


def main() -> None:
    sh("getenforce; id -Z; cat /proc/uptime")
    shutil.copytree(f"/{POLICY}", f"/former/{POLICY}")
    prepare()
    run("hook-of-a-library", LOOK, given="hook")
    sh(f"chcon -t bin_t {RELEASE}/grapnel-*")
    ask_daemon("asked-before")
    run("bound-before", LOOK, given="bound", hook="/usr/bin/true")
    tell_facts()
    run(
        "labelled",
        "cat /proc/tty/ldiscs /proc/tty/driver/* >/dev/null && ls /proc/tty",
        hook=f"{RELEASE}/grapnel-plan-labelled",
    )
    run("unlabelled", "ls /proc/tty", hook=f"{RELEASE}/grapnel-plan-unlabelled")
    load("/with")
    shutil.copytree("/with/var", "/var", dirs_exist_ok=True)
    tell_facts()
    tell_may()
    ask_daemon("asked")
    run("given", LOOK, given="hook")
    run("bound", LOOK, given="bound")
    run("not-given", "mknod /dev/nvidia0 c 4 16; " + LOOK)
    load("/former")
    run("bound-after", LOOK, given="bound", hook="/usr/bin/true")
    say(f"MODE {sh('getenforce').strip()}")
    sh("dmesg | grep 'avc: .denied' | grep -v setfiles_t; cat /proc/uptime")


if __name__ == "__main__":
    main()
