"""Measures an apply with nothing to do, compared with an empty Ansible run on the same nodes.

    python bench/apply.py INVENTORY [-f grapnel.yaml] [--rounds 10]

Both are whole processes, started alternately so that load affects both alike: `grapnel apply --yes` on nodes that are
as declared (else the benchmark fails), and ansible-runner with one ping per node. The first round of each
opens the ssh connections and is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PING = "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n"
RUN_PING = """
import sys
from pathlib import Path
from threading import Event
from provision.runner import AnsibleRunner, RunRequest, RunStatus
request = RunRequest(playbook=Path(sys.argv[1]), inventory=(sys.argv[2],), forks=20)
*_, end = AnsibleRunner().run(request, Event())
sys.exit(0 if end.status is RunStatus.SUCCESSFUL else end.message)
"""


def main() -> int:
    """Measure and print."""
    args = parse_arguments()
    inventory = str(args.inventory.absolute())
    with tempfile.TemporaryDirectory() as folder:
        playbook = Path(folder, "ping.yml")
        playbook.write_text(PING)
        ping = [sys.executable, "-c", RUN_PING, str(playbook), inventory]
        apply = [sys.executable, "-c", "import sys, provision.cli; sys.exit(provision.cli.main())", "apply", "--yes"]
        apply += ["-f", str(args.file.absolute()), "-i", inventory]
        seconds: dict[str, list[float]] = {"ping": [], "apply": []}
        for number in range(args.rounds + 1):
            for name, command in (("ping", ping), ("apply", apply)):
                took = measure(command)
                if number:
                    seconds[name].append(took)
    report(seconds)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="an apply with nothing to do, compared with an empty Ansible run")
    parser.add_argument("inventory", type=Path)
    parser.add_argument("-f", "--file", type=Path, default=Path("grapnel.yaml"), help="declaration")
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


def measure(command: list[str]) -> float:
    """Run a command and return its duration in seconds; a failure or a change ends the benchmark."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, timeout=900, check=False)
    took = time.monotonic() - began
    if done.returncode or " converged" in done.stdout:
        sys.exit(f"not a run with nothing to do ({done.returncode}):\n{done.stdout}{done.stderr}")
    return took


def report(seconds: dict[str, list[float]]) -> None:
    """Print minimum, median and maximum of each, and the ratio of the medians."""
    print(f"{'':6} {'min':>7} {'med':>7} {'max':>7}   seconds, {len(seconds['ping'])} rounds")
    for name, values in seconds.items():
        print(f"{name:6} {min(values):7.2f} {statistics.median(values):7.2f} {max(values):7.2f}")
    print(f"ratio of medians: {statistics.median(seconds['apply']) / statistics.median(seconds['ping']):.2f}")


if __name__ == "__main__":
    sys.exit(main())
