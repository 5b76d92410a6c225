"""`grapnel uninstall`: ends the controller before its chart goes, or says what is in flight. Not for people."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.base.errors import ExitCode, GrapnelError
from provision.cli.apply import positive

if TYPE_CHECKING:
    import argparse

NAMESPACE: Final = "grapnel-system"
MINUTES: Final = 3


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--deployment", required=True, metavar="NAME", help="the Deployment of the controller")
    parser.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", NAMESPACE),
        help=f"where it is (default: $POD_NAMESPACE, {NAMESPACE})",
    )
    parser.add_argument(
        "--wait",
        type=positive,
        default=MINUTES,
        metavar="MINUTES",
        help=f"how long to wait for what is in flight (default: {MINUTES})",
    )
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="outside of a pod: how to reach the cluster")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")


def run(args: argparse.Namespace) -> int:
    """End the controller once nothing is in flight. Raises GrapnelError where it goes on."""
    from provision.apply.interrupt import cancel_on_signals  # noqa: PLC0415 - start-up time
    from provision.cluster.connect import open_api  # noqa: PLC0415 - start-up time
    from provision.controller.uninstall.ending import Ending  # noqa: PLC0415 - start-up time
    from provision.controller.uninstall.workload import Workload  # noqa: PLC0415 - start-up time

    api = open_api(args.kubeconfig, args.context, os.environ)
    if api is None:
        raise GrapnelError("there is no cluster around this process", hint="add `--kubeconfig`")
    workload = Workload(api, args.namespace, args.deployment)
    with cancel_on_signals() as stop:
        Ending(api, workload, args.wait * 60.0, lambda text: print(text, flush=True), stop).run()
    return ExitCode.DONE
