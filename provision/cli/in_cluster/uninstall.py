"""`grapnel uninstall`: ends the controller before its chart goes, or says what is in flight. Not for people."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from provision.apply.interrupt import cancel_on_signals
from provision.base.errors import ExitCode, GrapnelError
from provision.cluster.connect import open_api
from provision.controller.uninstall.ending import Ending
from provision.controller.uninstall.workload import Workload

if TYPE_CHECKING:
    import argparse


def run(args: argparse.Namespace) -> int:
    """End the controller once nothing is in flight. Raises GrapnelError where it goes on."""
    api = open_api(args.kubeconfig, args.context, os.environ)
    if api is None:
        raise GrapnelError("there is no cluster around this process", hint="add `--kubeconfig`")
    workload = Workload(api, args.namespace, args.deployment)
    with cancel_on_signals() as stop:
        Ending(api, workload, args.wait * 60.0, lambda text: print(text, flush=True), stop).run()
    return ExitCode.DONE
