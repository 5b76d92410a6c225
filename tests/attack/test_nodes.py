"""Two real nodes, one of them hostile: what reaches the other one's disk, the controller, the terminal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from lab.nodes import NodeSpec, Site
from tests.attack.attacks import CLIPBOARD, HONEST, SECRET, TEMPLATE, TITLE, Attack, Harm, forged, frame
from tests.attack.pair import HOSTILE, Pair
from tests.attack.stand_ins import CONTROLS, recorded
from tests.attack.test_playbook import DECLARATION
from tests.journey.conftest import ROOT, Controller
from tests.worker import of_this_worker

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

pytestmark = pytest.mark.nodes

MARK = "written-for-the-honest-node-by-the-hostile-one"
STOLEN = "/var/cache/grapnel-node.tar"
HOOK_CONFIG = "/etc/grapnel/hook.json"
TEXT = f"{TITLE}{CLIPBOARD}\x9b31m{TEMPLATE}"
FRAME = forged("runner_on_unreachable", msg="forged")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two nodes with an engine, and what an operator wants of them."""
    site = Site(of_this_worker("attack"))
    site.destroy()
    controller = Controller(tmp_path_factory.mktemp("operator"))
    controller.folder.joinpath("grapnel.yaml").write_text(DECLARATION)
    controller.folder.joinpath("inventory.yaml").symlink_to(site.inventory_path)
    specs = [NodeSpec(name, gpus=1, driver_module="550.163.01", packages=("containerd",)) for name in (HOSTILE, HONEST)]
    try:
        hostile, honest = map(site.up, specs)
        made = Pair(hostile, honest, controller)
        made.secret.write_text("the controller's own\n")
        made.secret.chmod(0o600)
        yield made
    finally:
        site.destroy()


@pytest.fixture(scope="module")
def applied(pair: Pair) -> str:
    """What an apply printed during which the hostile node spoke for the honest one."""
    done = _apply_while_forged(pair)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def _apply_while_forged(pair: Pair) -> subprocess.CompletedProcess[str]:
    """Apply while the hostile node says, as late as it can, what the honest one's files are."""
    answer: dict[str, Any] = recorded(HONEST)
    files = answer["facts"]["files"]
    files["/etc/containerd/config.toml"]["content"] = f"version = 2\n# {MARK}\n"
    files["/etc/containerd/conf.d/99-nvidia.toml"] = None
    warnings = ((("warnings",), [forged(facts=answer["facts"])]),)
    with pair.attacked(Attack(name="forge", harm=Harm.ANOTHER_NODE, values=warnings, sleep_s=1.5)):
        return pair.controller.grapnel("apply", "--yes")


def test_what_a_node_says_of_another_is_not_written_to_its_disk(pair: Pair, applied: str) -> None:
    found = pair.honest.run(["grep", "-rl", MARK, "/etc"], check=False).stdout
    plan = pair.row(pair.controller.grapnel("plan", "--json"))

    assert found == ""
    assert f"{HONEST}  " in applied
    assert (plan["items"], plan["problems"]) == ([], [])


def site_yml(pair: Pair) -> subprocess.CompletedProcess[str]:
    variables = {"grapnel_stack_file": str(pair.controller.folder / "grapnel.yaml"), "grapnel_wait_s": 0}
    argv = ["ansible-playbook", str(ROOT / "playbooks/site.yml"), "-i", "inventory.yaml", "-e", json.dumps(variables)]
    return pair.controller.run(*argv)


def stealing_plan() -> dict[str, object]:
    """Return a plan that sends a file of the controller to the node."""
    runtime = {"runtime_engine": "containerd", "runtime_service": "containerd.service", "runtime_hook_digest": ""}
    nothing = {"runtime_packages": [], "runtime_files": [], "runtime_restart": False, "runtime_reload": False}
    daemon = {"node_daemon_archive": SECRET, "node_daemon_digest": "0" * 64, "node_daemon_files": []}
    switches = {"node_daemon_enabled": True, "node_daemon_restart": False, "node_daemon_reload": False}
    switches |= {"node_daemon_absent": [], "node_daemon_mig_files": [], "node_daemon_mig_divide": False}
    switches |= {"node_daemon_timers": [], "node_daemon_set_gpus": False, "node_daemon_python": "/usr/bin/python3"}
    roles = {"runtime": runtime | nothing | {"runtime_hook_archive": ""}, "node_daemon": daemon | switches}
    return {"schema": "grapnel.dev/plan/v1alpha1", "node": HOSTILE, "items": [], "problems": [], "roles": roles}


@pytest.mark.parametrize("modules", ["facts", "but facts"])
@pytest.mark.usefixtures("applied")
def test_a_playbook_takes_no_plan_from_a_node(modules: str, pair: Pair) -> None:
    pair.hostile.run(["rm", "-f", STOLEN, HOOK_CONFIG])
    before = pair.fingerprint()
    plan = stealing_plan()
    facts = {"grapnel_plan": plan, "grapnel_planned": {"plan": plan}, "apply_plan": plan}
    facts |= {"node_daemon_archive": SECRET, "ansible_connection": "local"}
    attack = Attack(name="steal", harm=Harm.CONTROLLER, values=((("ansible_facts",), facts),), modules=(modules,))

    with pair.attacked(attack):
        done = site_yml(pair)

    said = done.stdout + done.stderr
    recap = {line.split()[0]: line for line in done.stdout.splitlines() if "unreachable=" in line}
    assert "failed=0" in recap[HONEST], said
    assert "failed=0" not in recap[HOSTILE], said
    assert pair.hostile.run(["cat", STOLEN], check=False).stdout == ""
    assert pair.fingerprint() == before
    assert not pair.pwned.exists()


@pytest.mark.usefixtures("applied")
def test_what_lies_on_a_node_speaks_for_that_node_alone(pair: Pair) -> None:
    """Banner, motd, names, versions, configuration: everything that a node shows without a hostile program."""
    quiet = pair.row(pair.controller.grapnel("plan", "--json"))
    hostile = _speaking_files(pair)

    with pair.replaced(hostile):
        pair.hostile.run(["systemctl", "reload", "ssh"])
        pair.hostile.access.close(pair.hostile.address)
        as_json = pair.controller.grapnel("plan", "--json")
        as_table = pair.controller.grapnel("plan")
    pair.hostile.run(["systemctl", "reload", "ssh"])

    said = f"{as_json.stdout}{as_json.stderr}{as_table.stdout}{as_table.stderr}"
    assert pair.row(as_json) == quiet
    assert pair.row(as_json, HOSTILE)
    assert sorted(set(CONTROLS.findall(said))) == []
    assert not pair.pwned.exists()


def _speaking_files(pair: Pair) -> dict[str, bytes]:
    text = TEXT.replace("@PWNED@", str(pair.pwned))
    status = (pair.hostile.root / "var/lib/dpkg/status").read_bytes()
    package = f"\nPackage: nvidia-smi\nStatus: install ok installed\nVersion: 1{TEXT}\nArchitecture: amd64\n"
    package += "Source: nvidia-graphics-drivers\nMaintainer: x\nDescription: y\n"
    return {
        "/etc/ssh/banner": f"{FRAME}{text}\n".encode(),
        "/etc/ssh/sshd_config.d/banner.conf": b"Banner /etc/ssh/banner\nPrintMotd yes\n",
        "/root/.bashrc": f"printf '%s' '{FRAME}'; printf '%s\\n' '{TITLE}' >&2\n".encode(),
        "/etc/motd": f"{FRAME}{text}\n".encode(),
        "/etc/hostname": f"{text}\n".encode(),
        "/etc/os-release": f'ID="{text}"\nVERSION_ID="{text}"\nVERSION_CODENAME="{FRAME}"\n'.encode(),
        "/var/lib/dpkg/status": status + package.encode(),
        "/etc/containerd/conf.d/50-odd.toml": f'version = 2\nimports = 5\nplugins = 1\n"{text}" = 1\n'.encode(),
        "/etc/containerd/conf.d/60-odd.toml": b"\xff\xfe\x00",
        "/run/grapnel/inventory.json": b'{"driver_version": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        "/usr/lib/grapnel/hook/RELEASE": f"{text}\n".encode(),
    }


NAMES = [b"\x1b]0;owned\x07", b"\xff\xfe\x9b31m", b"a\nhonest 5", b"a GPU is held", b"{{ 7*7 }}", b"\x1b[2J\x1b[H"]
HOLD = """
import ctypes, os, signal, sys
name, group = bytes.fromhex(sys.argv[1]), bytes.fromhex(sys.argv[2])
mounts = [line.split() for line in open("/proc/mounts", "rb")]
folder = next(mount[1] for mount in mounts if mount[2] == b"cgroup2") + b"/" + group
os.makedirs(folder, exist_ok=True)
open(folder + b"/cgroup.procs", "w").write(str(os.getpid()))
os.setgid(65534); os.setuid(65534)
gpu = os.open("/dev/nvidia0", os.O_RDWR)
ctypes.CDLL(None).prctl(15, name)
signal.pause()
"""
SHORT = frame({"uuid": "1", "event": "runner_on_ok", "event_data": {"host": HONEST, "task": "x", "res": {}}})


@pytest.fixture
def _holders(pair: Pair) -> Iterator[None]:
    """Processes of an ordinary user that hold a GPU, under names and in control groups of every kind.

    A user may have a control group of his own (``Delegate=``), and names what is in it.
    """
    groups = (f"{SHORT}x{frame({})}.service".encode(), b"odd.service", b"\xff\x1b[2J.scope")
    for number, name in enumerate(NAMES):
        argv = ["/usr/bin/python3.13", "-c", HOLD, name.hex(), groups[number % len(groups)].hex()]
        pair.hostile.run(["systemd-run", "-q", f"--unit=hold{number}", "--collect", *argv])
    yield
    pair.hostile.run(["pkill", "-u", "65534"], check=False)


@pytest.mark.usefixtures("applied", "_holders")
def test_names_that_an_ordinary_user_chose_spoil_no_plan(pair: Pair) -> None:
    planned = pair.controller.grapnel("plan", "--json")

    assert planned.returncode == 0, planned.stdout + planned.stderr
    assert (pair.row(planned)["items"], pair.row(planned)["problems"]) == ([], [])
    assert pair.row(planned, HOSTILE)["problems"] == []
    assert sorted(set(CONTROLS.findall(planned.stdout + planned.stderr))) == []


@pytest.mark.usefixtures("applied", "_holders")
def test_names_that_an_ordinary_user_chose_are_shown_as_text(pair: Pair) -> None:
    released = pair.controller.run("ansible-playbook", str(ROOT / "playbooks/release.yml"), "-i", "inventory.yaml")

    said = released.stdout + released.stderr
    assert released.returncode == 0, said
    assert said.count("/dev/nvidia0 open") >= len(NAMES)
    assert sorted(set(CONTROLS.findall(said))) == []
