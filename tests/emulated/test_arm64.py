"""A machine of arm64 with a kernel of its own: its facts and plan, containers, and a driver's change under the daemon.

It is emulated in software, so that everything takes ten times as long; one machine does for all.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from lab.nodes.emulated.image import ensure
from lab.nodes.emulated.machine import emulated_machine
from lab.nvml.models import spark
from plugin.changes.driver_change.expectation import SCHEMA
from provision.declaration.fleet.facts.node import parse_facts
from provision.planning.driver_change import DriverChange, PackageVersion, change_id
from tests.emulated.brought import bring
from tests.provision.samples import available, make_stack, plan, replace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.nodes.emulated.machine import EmulatedMachine

pytestmark = [
    pytest.mark.nodes,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="unpacking Debian needs root"),
]

OLD, NEW = "560.28.03", "560.35.03"
SPARK = spark()
[UUID] = [gpu.uuid for gpu in SPARK.gpus]
DRIVER_PROGRAM, NODE_PROGRAM = "/usr/lib/grapnel/driver/grapnel-driver", "/usr/lib/grapnel/node/grapnel-node"
GATHER = """\
import sys
sys.path[:0] = ["/srv/ansible"]
from ansible.module_utils.testing import patch_module_args
from ansible_collections.grapnel.node.plugins.modules import facts
with patch_module_args({"refresh": False}):
    facts.main()
"""
# There is no module of a kernel's: its version is in a folder of files, and device nodes are those of other devices.
CONFIG = {
    "sysRoot": "/run/sys",
    "hookPath": "/bin/true",
    "metricsAddress": "127.0.0.1:9400",
    "refreshSeconds": 1,
    "retrySeconds": 1,
}
INSTALL_OLD = f"""\
echo 'deb [trusted=yes] file:/srv/packages ./' > /etc/apt/sources.list
apt-get -qq update
apt-get -qq install libnvidia-ml1={OLD}
mkdir -p /run/sys/module/nvidia
echo {OLD} > /run/sys/module/nvidia/version
"""
START_DAEMON = f"""\
mkdir -p /etc/grapnel /var/lib/kubelet/device-plugins
for name in nvidiactl nvidia-uvm nvidia0; do mknod -m 666 /dev/$name c 1 5; done
cat > /etc/grapnel/node.json
systemd-run --quiet --unit grapnel-node --service-type notify --property NotifyAccess=all {NODE_PROGRAM} run
"""
FOUND_IN = "PYTHONPATH=/srv/kubelet:/srv/kubelet/site:/srv/node:/srv/node/site"
STAND_IN = f"env {FOUND_IN} python3 -B -m lab.kubelet --root /var/lib/kubelet"
START_KUBELET = f"systemd-run --quiet --unit kubelet --property StandardOutput=file:/run/kubelet.log {STAND_IN} watch"
METRICS = r"exec 3<> /dev/tcp/127.0.0.1/9400; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatedMachine]:
    """Boot the machine with everything that is run on it."""
    brought = bring(tmp_path_factory.mktemp("arm64"), SPARK, (OLD, NEW))
    with emulated_machine(ensure(), files=brought) as booted:
        booted.sh("mkdir -p /usr/lib/grapnel; ln -s /srv/driver /srv/node /usr/lib/grapnel")
        yield booted


def test_its_facts_are_planned_with_packages_of_its_own_architecture(machine: EmulatedMachine) -> None:
    answer = json.loads(machine.run(["python3", "-c", GATHER]).stdout)

    facts = parse_facts(answer["facts"])
    assert (facts.node.architecture, facts.node.os.version_id) == ("aarch64", "12")
    assert facts.node.kernel.endswith("-arm64")
    assert "runc" in facts.packages or facts.engines
    facts = replace(facts, available=available("trixie-arm64"))
    found = plan(facts, make_stack(driver={"version": "550.163.01"}, runtime={"enabled": False}))
    assert found.problems == ()
    assert found.roles.driver is not None
    assert found.roles.driver.driver_change is not None
    assert "libcuda1" in [each.name for each in found.roles.driver.driver_change.packages]


def test_real_runtimes_give_a_container_the_libraries_of_an_allocated_gpu(machine: EmulatedMachine) -> None:
    """The hook's own test, run there: with the machine's runtimes, loader, device rules and system calls."""
    test = "tests/runtime_hook/engines/test_runtimes.py::test_an_allocated_gpu_brings_libraries_that_the_loader_finds"

    done = machine.run(
        [
            *("env", "-C", "/srv/hook", "PYTHONPATH=/srv/hook", "python3", "-B", "-P", "-m", "pytest", "-q", "-rA"),
            *("-p", "no:cacheprovider", "--import-mode=importlib", "--confcutdir=tests/runtime_hook", test),
        ],
        timeout_s=600,
        check=False,
    )

    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_a_driver_is_staged_and_swapped_under_the_daemon_at_work(machine: EmulatedMachine) -> None:
    """A kubelet's stand-in is offered the GPU with the driver that the node came with, and with the next one."""
    machine.sh(INSTALL_OLD)
    machine.run(["sh", "-ec", START_DAEMON], given=json.dumps(CONFIG).encode())
    machine.sh(START_KUBELET)
    wait_for_list(machine, [UUID])
    assert f'modelName="NVIDIA GB10",Hostname="emulated",DCGM_FI_DRIVER_VERSION="{OLD}"' in metrics(machine)

    staged = stage(machine)
    holder = int(machine.sh("sleep infinity < /dev/nvidia0 > /dev/null 2>&1 & echo $!"))
    held = machine.run([NODE_PROGRAM, "release", "--json"], check=False)
    assert held.returncode == 3, held
    assert [each["pid"] for each in json.loads(held.stdout)["holders"]] == [holder]
    wait_for_list(machine, [])
    machine.sh(f"kill {holder}")
    released = machine.run([NODE_PROGRAM, "release", "--json"])
    assert json.loads(released.stdout)["holders"] == []

    swap(machine, staged)
    expectation = {"schema": SCHEMA, "driverVersion": NEW, "gpus": [UUID], "gpuCount": 1}
    verified = machine.run(
        [NODE_PROGRAM, "verify", "--json", "--expect", "-"], given=json.dumps(expectation).encode(), check=False
    )
    assert verified.returncode == 0, verified
    machine.run([NODE_PROGRAM, "resume"])
    wait_for_list(machine, [UUID])
    machine.sh("systemctl stop kubelet")
    given = json.loads(machine.sh(f"{STAND_IN} allocate 1"))
    assert given["annotations"]["grapnel.dev/allocation"] == UUID
    page = metrics(machine)
    assert f'DCGM_FI_DRIVER_VERSION="{NEW}"' in page
    assert "DCGM_FI_DEV_FB_" not in page


def stage(machine: EmulatedMachine) -> str:
    """Stage the next driver, which is one package, NVML; return the change's id."""
    change = DriverChange(
        version=NEW,
        flavour="none",
        manager="apt",
        packages=(PackageVersion("libnvidia-ml1", NEW),),
        remove=(),
        files=(),
        hold=True,
        kernels=(),
        dkms=None,
        services=(),
        sign=None,
        compile="stage",
        reboot=False,
        module=None,
    )
    done = machine.run([DRIVER_PROGRAM, "stage"], given=msgspec.json.encode(change), check=False)
    staged: dict[str, Any] = json.loads(done.stdout)
    assert staged["complete"], staged
    assert staged["id"] == change_id(change)
    return change_id(change)


def swap(machine: EmulatedMachine, staged: str) -> None:
    """Swap to what is staged, and to the kernel module that would be loaded with it."""
    swapped = json.loads(machine.run([DRIVER_PROGRAM, "swap", staged], check=False, timeout_s=300).stdout)
    assert swapped["run"]["state"] == "done", swapped
    state = machine.sh(
        "dpkg-query -W -f '${Version} ${Architecture} ${db:Status-Want}\\n' libnvidia-ml1; "
        "readlink /usr/lib/aarch64-linux-gnu/libnvidia-ml.so.1; "
        f"echo {NEW} > /run/sys/module/nvidia/version"
    )
    assert state == f"{NEW} arm64 hold\nlibnvidia-ml.so.{NEW}\n"


def wait_for_list(machine: EmulatedMachine, healthy: list[str]) -> None:
    """Wait until the kubelet's last list has these GPUs as healthy; what daemon and kubelet said where it has not."""
    last = json.dumps({"resource": "nvidia.com/gpu", "watched": True, "healthy": sorted(healthy)})
    script = 'for _ in $(seq 240); do tail -n 1 /run/kubelet.log | grep -qxF "$1" && exit; sleep 0.5; done; exit 1'
    if machine.run(["sh", "-c", script, "sh", last], timeout_s=200, check=False).returncode:
        pytest.fail(machine.sh("cat /run/kubelet.log; journalctl --no-pager -o cat -u grapnel-node -u kubelet"))


def metrics(machine: EmulatedMachine) -> str:
    """Return what the daemon's metrics are."""
    return machine.run(["bash", "-ec", METRICS]).stdout
