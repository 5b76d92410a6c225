"""The day of an operator on one node: what is said in it is held against the node, each time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.journey.conftest import OLD_VERSION, VERSION
from tests.journey.foreseen import look, not_done, not_shown, steps_of
from tests.journey.test_driver_swap import wait_for_dpkg, works_with
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lab.nodes import Node
    from tests.journey.conftest import Controller
    from tests.journey.foreseen import Moment, Step

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1200)]  # three changes of a driver, and three reboots

NAME = "day"
HOOK = "/etc/grapnel/hook.json"
DAEMON = "/etc/grapnel/node.json"
UNIT = "/etc/systemd/system/grapnel-drift.timer"
ENGINE = "/etc/containerd/config.toml"
NOTES = "/var/lib/grapnel/"  # of what was done, by grapnel-driver and the node daemon
# The node has the kernel of the machine that it runs on, which nothing starts again: what stands for its boot loader.
BOOT_LOADER = {
    "/usr/sbin/update-grub": """\
#!/bin/sh
eval "$(cat /etc/default/grub.d/*.cfg 2>/dev/null)"
echo linux /vmlinuz $GRUB_CMDLINE_LINUX >/boot/grub/grub.cfg
""",
    "/usr/local/sbin/start-kernel": """\
#!/bin/sh
cut -d' ' -f2- /boot/grub/grub.cfg >/run/cmdline
mount --bind /run/cmdline /proc/cmdline
""",
    "/etc/systemd/system/start-kernel.service": """\
[Service]
Type=oneshot
ExecStart=/usr/local/sbin/start-kernel
[Install]
WantedBy=multi-user.target
""",
}
SERVICES = ("containerd.service", "grapnel-node.service")


def said(controller: Controller, *words: str, code: int = 0) -> str:
    limit = () if words[0] in {"abandon", "skip", "reboot"} else (NAME,)
    done = controller.grapnel(*words, *limit, *(() if words[0] == "drift" else ("--no-cluster",)))
    assert done.returncode == code, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def loaded(node: Node) -> str:
    """Return the driver that runs on a node, empty for none."""
    return node.run(["sh", "-c", "cat /sys/module/nvidia/version 2>/dev/null || true"]).stdout.strip()


def running(node: Node) -> list[str]:
    words = node.run(["systemctl", "is-active", *SERVICES], check=False).stdout.split()
    return [unit for unit, word in zip(SERVICES, words, strict=True) if word == "active"]


def compared(node: Node) -> str:
    """Return what the node has found when it last compared itself."""
    return str(json.loads(node.run(["cat", "/var/lib/grapnel/drift/result.json"]).stdout)["state"])


def apply(controller: Controller, planned: list[dict[str, str]] | None = None) -> None:
    """Apply what differs: as many changes as the plan has, and none is left."""
    planned = controller.plan_items(NAME, "--no-cluster") if planned is None else planned
    done = controller.call("apply", NAME, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)["nodes"]
    assert result["changes"] == len(planned), f"{done.stdout}\n{planned}"
    assert controller.plan_items(NAME, "--no-cluster") == []


def apply_as_shown(controller: Controller, node: Node, *disruptions: str) -> None:
    """Apply, and hold the node to the plan: nothing changes that was not shown, nothing shown stays undone."""
    items = controller.plan_items(NAME, "--no-cluster")
    assert {item["disruption"] for item in items} == set(disruptions)
    steps = [step_of(item) for item in items]
    untouched = look(node, steps)

    apply(controller, items)

    assert_as_shown(steps, untouched, look(node, steps))


def assert_as_shown(steps: Sequence[Step], before: Moment, after: Moment) -> None:
    changed = not_shown(steps, before, after)
    assert {path: what for path, what in changed.items() if not path.startswith(NOTES)} == {}
    assert not_done(steps, before, after) == []


def step_of(item: dict[str, str]) -> Step:
    """Return an item as a step that can be looked for: of a hold the package that lacks it, of packages versions."""
    action, target = item["action"], item["target"]
    if target == "driver packages":
        return action, item["reason"].partition(":")[0]
    if action == "reload" and target.startswith("kernel module"):
        return "unload", target
    return ("install", f"{target} {item['to']}") if action == "upgrade" else (action, target)


def test_what_is_said_in_a_day_is_so(controller: Controller, node: Node) -> None:
    installs(controller, node)
    breaks_things_by_hand_and_mends_them(controller, node)
    changes_what_engine_and_daemon_read(controller, node)
    reboots(controller, node)
    upgrades(controller, node)
    abandons(controller, node)


def installs(controller: Controller, node: Node) -> None:
    controller.declare(OLD_VERSION)
    assert "as the run of" not in said(controller, "status"), "nothing was done yet"

    apply(controller)

    assert works_with(node, OLD_VERSION)
    assert running(node) == list(SERVICES)
    assert f"{OLD_VERSION}, as the run of" in said(controller, "status")
    assert "as declared" in said(controller, "drift")


def breaks_things_by_hand_and_mends_them(controller: Controller, node: Node) -> None:
    node.run(["systemctl", "stop", SERVICES[1]])
    node.run(["chmod", "0600", HOOK])
    node.run(["apt-mark", "unhold", "libcuda1"])

    drift = said(controller, "drift", code=3)
    items = {item["target"]: item["action"] for item in controller.plan_items(NAME, "--no-cluster")}

    assert items == {SERVICES[1]: "start", HOOK: "write", "driver packages": "hold"}
    assert [thing for thing in (SERVICES[1], HOOK, "libcuda1") if thing not in drift] == []
    assert running(node) == [SERVICES[0]], "who looks changes nothing"

    apply_as_shown(controller, node, "none")

    assert "as declared" in said(controller, "drift")
    assert running(node) == list(SERVICES)
    assert node.run(["stat", "-c", "%a", HOOK]).stdout.strip() == "644"
    assert "libcuda1" in node.run(["apt-mark", "showhold"]).stdout.split()

    assert "was started before" not in said(controller, "plan"), "apply restarts whatever it writes for"
    node.run(["touch", ENGINE])
    plan = said(controller, "plan")
    remedy = f"systemctl restart {SERVICES[0]}"
    assert f"{SERVICES[0]} was started before {ENGINE} changed" in plan
    assert remedy in plan
    node.run(remedy.split())
    assert "was started before" not in said(controller, "plan")

    node.run(["chmod", "0600", HOOK])
    node.run(["systemctl", "start", "grapnel-drift.service"])
    assert compared(node) == "drifted"
    node.run(["chmod", "0644", HOOK])
    said(controller, "plan")
    wait_until(lambda: compared(node) == "as-declared", lambda: compared(node))


def changes_what_engine_and_daemon_read(controller: Controller, node: Node) -> None:
    node.run(["sed", "-i", "/^imports/d", ENGINE])
    apply_as_shown(controller, node, "none", "restart-runtime")

    node.run(["sed", "-i", "s/{/{ /", DAEMON])
    apply_as_shown(controller, node, "none")

    declaration = controller.folder / "grapnel.yaml"
    declaration.write_text(declaration.read_text() + "  runtime: {entitlement: env}\n")
    apply(controller)
    node.run(["sed", "-i", "s/^\\[Timer\\]/&\\n/", UNIT])
    apply_as_shown(controller, node, "reload")
    controller.declare(OLD_VERSION)
    apply(controller)


def reboots(controller: Controller, node: Node) -> None:
    node.run(["mkdir", "-p", "/boot/grub", "/etc/default/grub.d"])
    for path, text in BOOT_LOADER.items():
        node.run(["tee", path], input_text=text)
    node.run(["chmod", "755", "/usr/sbin/update-grub", "/usr/local/sbin/start-kernel"])
    node.run(["update-grub"])
    node.run(["systemctl", "enable", "--now", "start-kernel"])
    declaration = controller.folder / "grapnel.yaml"
    declaration.write_text(declaration.read_text() + "  node: {kernel: {iommu: passthrough}}\n")
    apply_as_shown(controller, node, "none", "reboot")
    assert "iommu=pt" in node.run(["cat", "/proc/cmdline"]).stdout.split()
    controller.declare(OLD_VERSION)
    apply_as_shown(controller, node, "none", "reboot")
    assert "iommu=pt" not in node.run(["cat", "/proc/cmdline"]).stdout.split()
    assert works_with(node, OLD_VERSION)

    node.install_module(VERSION)
    for words in (("--plan",), ("--yes",)):
        untouched = look(node, ())
        refused = said(controller, "reboot", NAME, *words, code=1)
        assert f"boots next and has no module of driver {OLD_VERSION}" in refused
        assert (not_shown((), untouched, look(node, ())), look(node, ()).now["boot"]) == ({}, untouched.now["boot"])
    node.install_module(OLD_VERSION)
    said(controller, "reboot", NAME, "--plan")
    untouched = look(node, ())
    assert "1 rebooted" in said(controller, "reboot", NAME, "--yes")
    assert_as_shown([("reboot", NAME)], untouched, look(node, ()))
    assert works_with(node, OLD_VERSION)


def upgrades(controller: Controller, node: Node) -> None:
    controller.declare(VERSION)
    node.install_module(VERSION)
    assert loaded(node) == OLD_VERSION

    plan = said(controller, "plan")
    assert (OLD_VERSION in plan, VERSION in plan) == (True, True)
    apply_as_shown(controller, node, "none", "drain")

    assert works_with(node, VERSION)
    told = said(controller, "status")
    assert (f"driver {VERSION}" in told, f"driver {OLD_VERSION}" in told) == (True, False)


def abandons(controller: Controller, node: Node) -> None:
    """The terminal dies in the swap, and the node is taken over: what is shown of that is done, and nothing else."""
    controller.declare(OLD_VERSION)
    node.install_module(OLD_VERSION)
    argv = ["grapnel", "apply", "-i", "inventory.yaml", "--yes", "--no-cluster", NAME]
    with subprocess.Popen(
        argv,
        cwd=controller.folder,
        env=controller.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        wait_for_dpkg(node)
        os.killpg(process.pid, signal.SIGKILL)
    node.run(["sh", "-c", "while systemctl is-active --quiet grapnel-driver; do sleep 0.1; done"])
    assert "left in swap" in said(controller, "status", code=1)
    words = ("abandon", NAME, "--no-cluster", "--uncordon", "--json")
    (state,) = (one for one in controller.folder.rglob("node-state-*.json") if "progress" not in one.name)
    entry = json.loads(state.read_text())["nodes"][NAME]

    foreseen = controller.grapnel(*words, "--plan")
    assert foreseen.returncode == 0, foreseen.stdout + foreseen.stderr
    assert json.loads(state.read_text())["nodes"][NAME] == entry, "a plan changes nothing"
    steps = steps_of(foreseen.stdout, NAME)
    untouched = look(node, steps)

    done = controller.grapnel(*words, "--yes")

    assert done.returncode == 0, done.stdout + done.stderr
    assert_as_shown(steps, untouched, look(node, steps))
    after = json.loads(state.read_text())["nodes"][NAME]
    kept = {key for key in entry.keys() | after.keys() if entry.get(key) != after.get(key)}
    told = {f"{'write' if after.get(key) else 'remove'} {key} of {state}" for key in kept}
    assert {" ".join(step) for step in steps} == {*told, "resume GPUs"}
    assert kept == {"record", "cordoned", "skipped"}
    assert works_with(node, OLD_VERSION), "the swap came to its end"
    assert "skipped" in said(controller, "status")
    said(controller, "skip", NAME, "--undo")
