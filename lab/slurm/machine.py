"""Starts a Slurm machine, its daemons and jobs, and ends them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lab import trees
from lab.machine.command import CONTAINED, run
from lab.machine.errors import BootError
from lab.machine.requirements import require_machine
from lab.slurm.packages import ensure
from lab.slurm.supervise import ADDRESS, READY

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType
    from typing import Self

SUPERVISOR: Final = Path(__file__).with_name("supervise.py")
START_TIMEOUT_S: Final = 60.0
RUN_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
FIRST_PORT: Final = 7001
CONTROLLER: Final = "ctl"
_NAMED: Final = ("sh", "-c", 'hostname "$1" && shift && exec "$@"', "sh")
_CONF: Final = """\
ClusterName=lab
SlurmctldHost={controller}({address})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
GresTypes=gpu
ReturnToService=1
SlurmdTimeout=5
MessageTimeout=3
MinJobAge=2
KillWait=1
{nodes}
PartitionName=main Nodes=ALL Default=YES State=UP
"""
# Neither needs a control group of this machine: jobs are found by their processes.
_CGROUP: Final = {"bookworm": "CgroupPlugin=cgroup/v1\n", "trixie": "CgroupPlugin=disabled\n"}


class SlurmMachine:
    """A Slurm of the nodes ``nodes``, each with the host name that it is given there: NodeName, NodeHostname."""

    def __init__(self, suite: str, nodes: dict[str, str]) -> None:
        self.suite = suite
        self.nodes = nodes
        self._stack = contextlib.ExitStack()
        self._leader = 0

    def __enter__(self) -> Self:
        """Start everything, and wait until Slurm has every node."""
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all of its processes."""
        self._stack.close()

    @property
    def prefix(self) -> tuple[str, ...]:
        """What runs a command on the machine: the declaration's scheduler.slurm.command."""
        return ("nsenter", "--target", str(self._leader), "--mount", "--net", "--pid", "--ipc", "--root", "--wd")

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the machine, as root."""
        return run([*self.prefix, *argv], timeout_s=RUN_TIMEOUT_S, check=check)

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._daemon(CONTROLLER, "slurmctld")
        self.wait_until(lambda: self.run("scontrol", "ping", check=False).returncode == 0, "slurmctld answers")

    def stop_controller(self) -> None:
        """End slurmctld; slurmd and jobs go on."""
        self._end("/run/slurmctld.pid")

    def start_node(self, node: str, *, up_s: int | None = None) -> None:
        """Start a node's slurmd, on a machine that booted ``up_s`` seconds ago.

        slurmd's own option ``-b`` has it boot in the second in which it registers. Slurm counts in seconds, so that
        it may take the next registration for one more boot.
        """
        shell: tuple[str, ...] = _NAMED
        if up_s is not None:
            uptime_s = float(Path("/proc/uptime").read_text().split()[0])
            shell = ("unshare", "--time", "--fork", "--boottime", str(up_s - int(uptime_s)), *shell)
        self._daemon(self.nodes[node], "slurmd", shell=shell)

    def stop_node(self, node: str) -> None:
        """End a node's slurmd; its jobs go on."""
        self._end(f"/run/slurmd-{node}.pid")

    def states(self, node: str) -> set[str]:
        """Return the state and the flags of a node."""
        text = self.run("scontrol", "show", "node", node, "--oneliner").stdout
        return set(text.partition(" State=")[2].partition(" ")[0].split("+"))

    def reason(self, node: str) -> str:
        """Return the reason of a node, with who gave it, empty where it has none."""
        return self.run("scontrol", "show", "node", node, "--oneliner").stdout.partition(" Reason=")[2].strip()

    def submit(self, node: str) -> str:
        """Start a job of alice on a node that runs until `finish`, and return its ID."""
        until = "until [ -e /run/lab/end-$SLURM_JOB_ID ]; do sleep 0.1; done"
        alice = ("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "env", "-C", "/tmp")
        options = ("--parsable", "--output=/dev/null", "--time=60", f"--nodelist={node}", "--gres=gpu:1")
        job = self.run(*alice, "sbatch", *options, "--wrap", until).stdout.strip()
        self.wait_until(lambda: self.job_state(job) == "RUNNING", f"job {job} runs")
        return job

    def finish(self, job: str) -> None:
        """Let a job end; it takes a moment."""
        self.run("touch", f"/run/lab/end-{job}")

    def job_state(self, job: str) -> str:
        """Return a job's state in Slurm's words, empty for one that is over."""
        return self.run("squeue", "--noheader", "--jobs", job, "--format=%T", check=False).stdout.strip()

    def wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for something; raises BootError with the ends of the logs."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not is_so():
            if time.monotonic() > deadline:
                raise BootError(f"{what}: not within {START_TIMEOUT_S:g} s", hint=self._logs())
            time.sleep(POLL_S)

    def _start(self) -> None:
        require_machine()
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="grapnel-slurm-"))
        config = Path(folder, "config.json")
        layers = {"folder": folder, "tree": str(trees.ensure(self.suite)), "slurm": str(ensure(self.suite))}
        config.write_text(json.dumps({**layers, "files": json.dumps(self._files())}))
        log = self._stack.enter_context(Path(folder, "log").open("w+"))  # noqa: SIM115 - the stack closes it
        supervisor = subprocess.Popen(
            [*CONTAINED, "--net", "--ipc", sys.executable, "-I", str(SUPERVISOR), str(config)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
        self._stack.callback(supervisor.wait)
        self._stack.callback(supervisor.kill)
        self._wait_for_leader(supervisor, Path(folder, "log"))
        self._daemon(CONTROLLER, "munged", "--force")
        self.start_controller()
        for node in self.nodes:
            self.start_node(node)
        self.wait_until(lambda: all(self.states(node) == {"IDLE"} for node in self.nodes), "all nodes are idle")

    def _wait_for_leader(self, supervisor: subprocess.Popen[bytes], log: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children")
        while True:
            if supervisor.poll() is not None or time.monotonic() > deadline:
                raise BootError("the Slurm machine does not start", hint=log.read_text())
            found = children.read_text().split()
            if found and Path(f"/proc/{found[0]}/root", READY).exists():
                self._leader = int(found[0])
                return
            time.sleep(POLL_S)

    def _files(self) -> dict[str, str]:
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr={ADDRESS} Port={FIRST_PORT + index} CPUs=2 RealMemory=64 "
            "Gres=gpu:1"
            for index, (name, host) in enumerate(self.nodes.items())
        )
        hosts = f"127.0.0.1 localhost\n{ADDRESS} {CONTROLLER} {' '.join(self.nodes.values())}\n"
        return {
            "etc/slurm/slurm.conf": _CONF.format(controller=CONTROLLER, address=ADDRESS, nodes=nodes),
            "etc/slurm/gres.conf": "Name=gpu File=/dev/zero\n",
            "etc/slurm/cgroup.conf": _CGROUP[self.suite],
            "etc/hosts": hosts,
            **{f"var/spool/slurmd/{name}/.keep": "" for name in self.nodes},
        }

    def _daemon(self, host: str, *argv: str, shell: Sequence[str] = _NAMED) -> None:
        """Start a program that goes into the background, on a host of that name."""
        self.run("unshare", "--uts", *shell, host, *_with_path(argv))

    def _end(self, pid_file: str) -> None:
        pid = self.run("cat", pid_file).stdout.strip()
        self.run("kill", pid)
        self.wait_until(lambda: self.run("kill", "-0", pid, check=False).returncode != 0, f"process {pid} ends")

    def _logs(self) -> str:
        return self.run("sh", "-c", "tail -n 12 /var/log/slurm/*.log", check=False).stdout


def _with_path(argv: Sequence[str]) -> tuple[str, ...]:
    return (f"/usr/sbin/{argv[0]}", *argv[1:])
