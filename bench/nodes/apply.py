"""Measures an apply with nothing to do, compared with an empty Ansible run on the same nodes.

    python bench/nodes/apply.py INVENTORY [-f grapnel.yaml] [--rounds 10]

Both are whole processes, started alternately so that load affects both alike: `grapnel apply --yes` on nodes that are
as declared (else the benchmark fails), and ansible-runner with one ping per node. What is compared is the CPU time of
the controller, with all processes that it starts. The first round of each opens the ssh connections and is not counted.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.stage.figures import Spread, in_turn
from bench.stage.processes import Cost, measure

PING: Final = "- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n"
RUN_PING: Final = """
import sys
from pathlib import Path
from threading import Event
from provision.apply.runner import AnsibleRunner, RunRequest, RunStatus
request = RunRequest(playbook=Path(sys.argv[1]), inventory=(sys.argv[2],), forks=20)
*_, end = AnsibleRunner().run(request, Event())
sys.exit(0 if end.status is RunStatus.SUCCESSFUL else end.message)
"""
GRAPNEL: Final = (sys.executable, "-c", "import sys, provision.cli; sys.exit(provision.cli.main())")


def main() -> int:
    """Measure and print."""
    args = parse_arguments()
    inventory = str(args.inventory.absolute())
    with tempfile.TemporaryDirectory() as folder:
        playbook = Path(folder, "ping.yml")
        playbook.write_text(PING)
        commands = {
            "ping": (sys.executable, "-c", RUN_PING, str(playbook), inventory),
            "apply": (*GRAPNEL, "apply", "--yes", "-f", str(args.file.absolute()), "-i", inventory),
        }
        costs: dict[str, list[Cost]] = {name: [] for name in commands}
        for turn in range(args.rounds + 1):
            for name in in_turn(tuple(commands), turn):
                cost = measure(commands[name])
                if " converged" in cost.output:
                    sys.exit(f"not an apply with nothing to do:\n{cost.output}")
                costs[name] += [cost] if turn else []
    report(costs)
    return 0


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description="an apply with nothing to do, compared with an empty Ansible run")
    parser.add_argument("inventory", type=Path)
    parser.add_argument("-f", "--file", type=Path, default=Path("grapnel.yaml"), help="declaration")
    parser.add_argument("--rounds", type=int, default=10)
    return parser.parse_args()


def report(costs: dict[str, list[Cost]]) -> None:
    """Print CPU time and time on the clock of each, and the ratio of the medians."""
    print(f"{'':6} {'min    med    max':>20} {'min    med    max':>24}")
    print(f"{'':6} {'seconds of CPU':>20} {'seconds on the clock':>24}   {len(costs['ping'])} rounds")
    for name, each in costs.items():
        cpu, wall = Spread.of(cost.cpu_s for cost in each), Spread.of(cost.wall_s for cost in each)
        print(f"{name:6} {cpu.show(2)} {wall.show(2, 8)}")
    medians = {name: Spread.of(cost.cpu_s for cost in each).mid for name, each in costs.items()}
    print(f"ratio of medians, CPU: {medians['apply'] / medians['ping']:.2f}")


if __name__ == "__main__":
    sys.exit(main())
