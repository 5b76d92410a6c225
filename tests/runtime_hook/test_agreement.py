"""``grapnel-hook explain`` and the real hook on the same containers: outcome, reason and plan are the same."""

from __future__ import annotations

import json
import re
import shlex
import socket
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from provision.planning.engines.docker import render_gpus_program
from runtime_hook.commands.explain import Sources, explain
from tests.runtime_hook.containers import HOOK, HOOK_ENVIRONMENT, Container
from tests.runtime_hook.driverlayers import EVERYTHING
from tests.runtime_hook.drivertree import DriverTree, uuid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

CONTROL = [("/dev/nvidiactl", 62), ("/dev/nvidia-uvm", 60)]
ONE_GPU = [*CONTROL, ("/dev/nvidia0", 16)]
FUSE = [("/dev/fuse", 229)]
# GPU 0 with the nodes of its first MIG device, as the layer ``mig`` has them.
ONE_MIG = [*ONE_GPU, ("/dev/nvidia-caps/nvidia-cap3", 40), ("/dev/nvidia-caps/nvidia-cap4", 41)]
ALLOCATION = "grapnel.dev/allocation"
CONTAINERD = {"io.kubernetes.cri.sandbox-namespace": "web", "io.kubernetes.cri.sandbox-name": "pod-1"}
CRIO = {"io.kubernetes.pod.namespace": "web", "io.kubernetes.pod.name": "pod-1"}
RULES = [{"decision": "allow", "namespaces": ["training"]}]
WEB = [{"decision": "allow", "namespaces": ["web"]}]
ENV = {"entitlement": "env"}
SYS_ADMIN = ["CAP_SYS_ADMIN", "CAP_CHOWN"]


def crio(allocation: str = "", **forged: str) -> dict[str, str]:
    """Return a container's annotations as CRI-O writes them: its own as JSON, over whatever the pod has."""
    own = json.dumps({ALLOCATION: allocation} if allocation else {})
    return {**forged, **CRIO, "io.kubernetes.cri-o.Annotations": own}


@dataclass
class Case:
    """A container, and what is expected of both."""

    outcome: str
    told: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    layers: tuple[str, ...] | None = ()
    is_cdi: bool = False
    is_gpus: bool = False


def nothing(told: str, **more: Any) -> Case:
    return Case("nothing", told, **more)


def refused(told: str, **more: Any) -> Case:
    return Case("refused", told, **more)


def granted(told: str, **more: Any) -> Case:
    return Case("granted", told, **more)


def mount_request(name: str) -> dict[str, Any]:
    mounts = Container(folder=None, root=None, command=[]).config()["mounts"]  # type: ignore[arg-type] # not used
    target = f"/var/run/nvidia-container-devices/{name}"
    return {"mounts": [*mounts, {"destination": target, "type": "bind", "source": "/dev/null", "options": ["bind"]}]}


ASKED_ALL = ["NVIDIA_VISIBLE_DEVICES=all"]
NO_DRIVER = "no NVIDIA driver libraries"
CASES = {
    # what passes by
    "nothing is asked": nothing("no GPU was allocated"),
    "nothing is asked, with rules": nothing("no GPU was allocated", settings={"rules": RULES}),
    "nothing is asked in env mode": nothing("NVIDIA_VISIBLE_DEVICES is not set", settings=ENV),
    "void is asked": nothing(
        "NVIDIA_VISIBLE_DEVICES is void", settings=ENV, options={"environment": ["NVIDIA_VISIBLE_DEVICES=void"]}
    ),
    "an image asks for all under Kubernetes": nothing("is no entitlement", options={"environment": ASKED_ALL}),
    "a mount asks under Kubernetes": nothing("volume mounts are no", options={"changes": mount_request("0")}),
    "another device": nothing("none of the container's devices is a GPU", options={"devices": FUSE}),
    "another device, without a driver": nothing(NO_DRIVER, options={"devices": FUSE}, layers=None),
    "another device and a request, without a driver": nothing(
        NO_DRIVER, options={"devices": FUSE, "environment": ASKED_ALL}, layers=None
    ),
    "another device, with rules": nothing("none of", settings={"rules": RULES}, options={"devices": FUSE}),
    "a request, without a driver": nothing("is no entitlement", options={"environment": ASKED_ALL}, layers=None),
    "a privileged container": nothing(
        "entitled by an allocation alone", options={"devices": ONE_GPU, "capabilities": SYS_ADMIN}
    ),
    "an environment that is not accepted": nothing(
        "of unprivileged containers is not accepted",
        settings={**ENV, "acceptEnvvarUnprivileged": False},
        options={"environment": ASKED_ALL},
    ),
    "a request that rules deny": nothing(
        "no rule allows GPUs for user 0", settings={**ENV, "rules": RULES}, options={"environment": ASKED_ALL}
    ),
    "a forged allocation under CRI-O": nothing(
        "no GPU was allocated", options={"annotations": crio(**{"grapnel.dev/handler": "nvidia"})}
    ),
    "a forged allocation that names a GPU under CRI-O": nothing(
        "is no entitlement", options={"annotations": crio(**{ALLOCATION: uuid(0), "grapnel.dev/handler": "nvidia"})}
    ),
    # what is refused
    "devices, without a driver": refused(NO_DRIVER, options={"devices": ONE_GPU}, layers=None),
    "an allocation, without a driver": refused(NO_DRIVER, options={"annotations": {ALLOCATION: uuid(0)}}, layers=None),
    "an allocation of an unknown GPU": refused("unknown GPU GPU-x", options={"annotations": {ALLOCATION: "GPU-x"}}),
    "a request for an unknown GPU": refused(
        "unknown GPU 9", settings=ENV, options={"environment": ["NVIDIA_VISIBLE_DEVICES=9"]}
    ),
    "a capability that is not supported": refused(
        "unsupported driver capabilities graphics",
        options={"devices": ONE_GPU, "environment": ["NVIDIA_DRIVER_CAPABILITIES=graphics"]},
    ),
    "a requirement that is not met": refused(
        f"not met on {uuid(0)}: driver>=999 fails",
        options={"devices": ONE_GPU, "environment": ["NVIDIA_REQUIRE_X=driver>=999"]},
    ),
    "a requirement that is none, behind one that is not met": refused(
        "is no requirement",
        options={"devices": ONE_GPU, "environment": ["NVIDIA_REQUIRE_A=driver>=999", "NVIDIA_REQUIRE_B=nonsense"]},
    ),
    "devices without a control node": refused(
        "device node /dev/nvidia-uvm 4:60 was not given",
        options={"devices": [("/dev/nvidiactl", 62), ("/dev/nvidia0", 16)]},
    ),
    "half a MIG device": refused("MIG", options={"devices": ONE_MIG[:-1]}, layers=("mig",)),
    "a node that the host does not have": refused(
        "/dev/nvidia-modeset",
        settings={**ENV, "supportedDriverCapabilities": ["display"]},
        options={"environment": [*ASKED_ALL, "NVIDIA_DRIVER_CAPABILITIES=display"]},
    ),
    "a namespace that rules do not allow, containerd": refused(
        "no rule allows GPUs for namespace web",
        settings={"rules": RULES},
        options={"devices": ONE_GPU, "annotations": CONTAINERD},
    ),
    "a namespace that rules do not allow, CRI-O": refused(
        "no rule allows GPUs for namespace web",
        settings={"rules": RULES},
        options={"devices": ONE_GPU, "annotations": crio(uuid(0))},
    ),
    "no namespace at all, with rules": refused(
        "no rule allows GPUs for user 0, outside any namespace",
        settings={"rules": RULES},
        options={"devices": ONE_GPU},
    ),
    # what is granted
    "one GPU, containerd": granted("devices", options={"devices": ONE_GPU, "annotations": CONTAINERD}),
    "one GPU, CRI-O": granted("devices", options={"devices": ONE_GPU, "annotations": crio(uuid(0))}),
    "one GPU, CRI-O, handler and allocation forged": granted(
        "devices", options={"devices": ONE_GPU, "annotations": crio(**{ALLOCATION: uuid(1), "grapnel.dev/handler": ""})}
    ),
    "one GPU that rules allow": granted(
        "devices", settings={"rules": WEB}, options={"devices": ONE_GPU, "annotations": CONTAINERD}
    ),
    "another GPU than the annotation names": granted(
        "devices", options={"devices": ONE_GPU, "annotations": {ALLOCATION: uuid(1)}}
    ),
    "a privileged container with an allocation": granted(
        "annotation", options={"capabilities": SYS_ADMIN, "annotations": {ALLOCATION: uuid(1)}}
    ),
    "every capability": granted(
        "devices",
        settings={"supportedDriverCapabilities": ["compute", "utility", "video", "graphics", "ngx", "compat32"]},
        options={"devices": ONE_GPU, "environment": ["NVIDIA_DRIVER_CAPABILITIES=all"]},
        layers=EVERYTHING,
    ),
    "a requirement that is met": granted(
        "devices", options={"devices": ONE_GPU, "environment": ["NVIDIA_REQUIRE_CUDA=brand=nvidia,cuda>=1"]}
    ),
    "all, asked for in env mode": granted("environment", settings=ENV, options={"environment": ASKED_ALL}),
    "none, asked for in env mode": granted(
        "environment", settings=ENV, options={"environment": ["NVIDIA_VISIBLE_DEVICES=none"]}
    ),
    "a mount that asks in env mode": granted(
        "volume-mount",
        settings={**ENV, "acceptVolumeMounts": True},
        options={"changes": mount_request("1")},
    ),
    "a CDI device": granted("devices", options={"devices": ONE_GPU, "capabilities": SYS_ADMIN}, is_cdi=True),
    "a CDI device that rules deny": refused(
        "no rule allows GPUs", settings={"rules": RULES}, options={"devices": ONE_GPU}, is_cdi=True
    ),
    "Docker's --gpus under Kubernetes": granted("docker-gpus", options={"environment": ASKED_ALL}, is_gpus=True),
    "Docker's --gpus that rules deny": refused(
        "no rule allows GPUs", settings={"rules": RULES}, options={"environment": ASKED_ALL}, is_gpus=True
    ),
    "a MIG device": granted("devices", options={"devices": ONE_MIG}, layers=("mig",)),
}


pytestmark = pytest.mark.functional


class Syslog:
    """Listens where syslog would."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.bind(str(path))
        self.path = path

    def lines(self) -> list[dict[str, str]]:
        """Return the members of each line so far."""
        found = []
        while True:
            try:
                line = self._socket.recv(1 << 16).decode()
            except BlockingIOError:
                return found
            found.append(dict(word.split("=", 1) for word in shlex.split(line.partition(": ")[2])))

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def syslog(tmp_path: Path) -> Iterator[Syslog]:
    made = Syslog(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def make(
    tmp_path: Path, root: Path, objects: Path, configure: Callable[..., list[str]], syslog: Syslog
) -> Callable[[Case], Container]:
    """Make the container of a case, on a host that has the driver or not."""

    def build(case: Case) -> Container:
        host = DriverTree(tmp_path / "host", objects)
        if case.layers is None:
            host.root.mkdir()
        else:
            host.layers = case.layers
            host.build()
        arguments = configure(**case.settings, log=str(syslog.path))
        made = Container(tmp_path / "bundle", root, ["/bin/busybox", "true"], hook_arguments=arguments, **case.options)
        if case.is_cdi:
            hook = tmp_path / "grapnel-hook"
            hook.symlink_to(HOOK)
            words = ["grapnel-hook", "prestart", *arguments, "--entitlement", "cdi"]
            entry = {"path": str(hook), "args": words, "env": HOOK_ENVIRONMENT}
            made.with_hook, made.changes = False, {**made.changes, "hooks": {"createRuntime": [entry]}}
        if case.is_gpus:
            made.with_hook, made.changes = False, {"hooks": {"prestart": [as_dockerd_adds_it(tmp_path, arguments)]}}
        return made

    return build


def as_dockerd_adds_it(folder: Path, arguments: list[str]) -> dict[str, Any]:
    """Return the entry for ``--gpus``, and install what it starts: grapnel's own text, with these arguments."""
    program = folder / "nvidia-container-runtime-hook"
    text = render_gpus_program(hook=str(HOOK), theirs=str(folder / "none")).rstrip()
    program.write_text(f"{text} {shlex.join(arguments)}\n")
    program.chmod(0o755)
    return {"path": str(program), "args": [program.name, "prestart"], "env": HOOK_ENVIRONMENT}


def ask(made: Container) -> dict[str, Any]:
    """Explain a container with what its hook reads."""
    options = dict(zip(made.hook_arguments[::2], made.hook_arguments[1::2], strict=True))
    sources = Sources(str(made.write()), config_path=options["--config"], driver_root=options["--root"])
    return explain(sources)


def look_inside(operations: list[str]) -> str:
    """Return a script that prints the container's mounts and links, and the device nodes and files that were made."""
    links = " ".join(re.findall(r"^link (\S+) to", "\n".join(operations), re.MULTILINE))
    made = " ".join(re.findall(r"^(?:make device node|write) (\S+)", "\n".join(operations), re.MULTILINE))
    script = "cut -d' ' -f5 /proc/self/mountinfo | while read place; do echo mount $place; done"
    script += f"; for name in {links}; do echo link $name to `readlink $name`; done" if links else ""
    return script + (f"; for name in {made}; do [ -e $name ] && echo made $name; done" if made else "")


def planned(operations: list[str]) -> set[str]:
    """Return what the script prints where every operation was applied."""
    text = "\n".join(operations)
    found = {f"mount {place}" for place in re.findall(r"^bind \S+ on (\S+),", text, re.MULTILINE)}
    found |= {f"link {link} to {target}" for link, target in re.findall(r"^link (\S+) to (\S+)", text, re.MULTILINE)}
    return found | {f"made {name}" for name in re.findall(r"^(?:make device node|write) (\S+)", text, re.MULTILINE)}


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in CASES.items()])
def test_explain_and_the_hook_decide_alike(case: Case, make: Callable[[Case], Container], syslog: Syslog) -> None:
    made = make(case)
    told = ask(made)
    outcome = "refused" if told["refused"] else "granted" if told["entitled"] else "nothing"
    assert (outcome, told["refused"]) == (case.outcome, told["reason"] if case.outcome == "refused" else None)
    assert case.told in (told["source"] if case.outcome == "granted" else told["reason"])
    made.command = ["/bin/sh", "-c", look_inside(told["operations"])]

    done = made.run()

    lines = syslog.lines()
    assert (done.returncode == 0) is (case.outcome != "refused"), done.stderr
    assert all(line["decision"] == case.outcome for line in lines)
    own = {f"mount {mount['destination']}" for mount in made.config()["mounts"]} | {"mount /"}
    if case.outcome == "granted":
        assert_same_grant(told, lines[0])
    else:
        assert [line["reason"] for line in lines] in ([], [told["reason"]])
        assert case.outcome == "nothing" or told["reason"] in done.stderr
    seen, wanted = set(done.stdout.splitlines()), planned(told["operations"])
    assert wanted <= seen
    assert seen - wanted <= own


def assert_same_grant(told: dict[str, Any], line: dict[str, str]) -> None:
    """Compare what was told with the line of the log."""
    assert line["source"] == told["source"]
    assert line["gpus"] == (",".join(device["uuid"] for device in told["devices"]) or "none")
    assert line["capabilities"] == ",".join(told["capabilities"])
    assert line["operations"] == str(len(told["operations"]))
    assert all(note in told["reason"] for note in line.get("notes", "").split("; "))
