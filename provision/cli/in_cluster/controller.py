"""`grapnel controller`: brings the Nodes of the cluster that it runs in to their GpuStacks, until it is stopped."""

from __future__ import annotations

import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import provision
from provision.apply.runner import find_collection
from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.session.listening import open_listeners
from provision.cli.session.scope import Scope, asked_of
from provision.cluster import pod_rules
from provision.cluster.connect import open_api
from provision.cluster.kubernetes.cluster import KubernetesCluster
from provision.cluster.kubernetes.nodes.locks import Locks
from provision.controller.jobs.manifest import JobKind
from provision.controller.jobs.runner import JobRunner
from provision.controller.loop import Controller
from provision.controller.publication.probes import Probes
from provision.controller.rounds.apply import Dependencies
from provision.controller.stacks.secret_hosts import parse_secret_hosts
from provision.planning.supply.payload import store
from provision.planning.supply.payload.place import payload_folder

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from provision.cluster.kubernetes.api.client import Api
    from provision.cluster.kubernetes.cluster import Held
    from provision.controller.stacks.secret_hosts import SecretHosts
    from provision.declaration.spec.model import StackSpec
    from provision.report.notify.listeners import Listeners


def run(args: argparse.Namespace) -> int:
    """Lead, or wait to lead, until SIGTERM or Ctrl-C. Raises LeaseLostError where another process leads by now."""
    if not args.image:
        raise UsageError("controller needs --image", hint="it is the image that this process runs in: $GRAPNEL_IMAGE")
    if not args.holder:
        raise UsageError("controller needs --holder", hint="the name of its pod: $POD_NAME")
    try:
        secret_hosts = parse_secret_hosts(args.secret_hosts)
    except ValueError as error:
        raise UsageError(f"--secret-hosts: {error}", hint="such as gates=prometheus.example.com") from None
    api = open_api(args.kubeconfig, args.context, os.environ)
    if api is None:
        raise GrapnelError("there is no cluster around this process", hint="add `--kubeconfig`")
    controller = make_controller(args, api, secret_hosts)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: controller.stop())
    with Probes(args.probes, controller):
        run_beside_signals(controller)
    return ExitCode.DONE


def run_beside_signals(controller: Controller) -> None:
    """Run it on a thread, and raise what it ends with.

    Signals are handled between two steps of the main thread: in the middle of a wait of its own, whose lock it holds,
    it would wait for that lock for ever.
    """
    ended: list[BaseException] = []

    def run() -> None:
        try:
            controller.run()
        except BaseException as error:  # noqa: BLE001 - raised again below
            ended.append(error)

    thread = threading.Thread(target=run, name="controller")
    thread.start()
    thread.join()
    if ended:
        raise ended[0]


def make_controller(args: argparse.Namespace, api: Api, secret_hosts: SecretHosts) -> Controller:
    """Put a controller together."""
    collection = find_collection(Path(provision.__file__).parent)
    if collection is None:
        raise GrapnelError("this installation has no grapnel.node collection", hint="rebuild the image")
    payload = store.load_payload(payload_folder(args.payload, os.environ, Path("grapnel.yaml")))
    kind = JobKind(image=args.image, namespace=args.namespace, pull_secrets=tuple(args.pull_secret))

    def dependencies(held: Held) -> Dependencies:
        def open_cluster(stacks: Mapping[str, StackSpec]) -> KubernetesCluster:
            return _open_cluster(api, stacks, held, kind.namespace)

        return Dependencies(
            runner=JobRunner(api.guarded(held.check), kind, args.parallel),
            collection=collection,
            payload=payload,
            open_cluster=open_cluster,
            holder=args.holder,
            parallel=args.parallel,
            listen=lambda cluster, stacks: _listen(cluster, stacks, args.holder),
        )

    return Controller(
        api,
        dependencies,
        args.holder,
        say=_say,
        node=args.node,
        secret_hosts=secret_hosts,
        domains_in=args.namespace if args.compute_domains else "",
    )


def _open_cluster(api: Api, stacks: Mapping[str, StackSpec], held: Held, namespace: str) -> KubernetesCluster:
    asked = asked_of(stacks)
    rules = replace(pod_rules(stacks.values()), namespace=namespace)
    return KubernetesCluster(api, rules=rules, machines={}, asked=asked, locks=Locks(api, asked.respect), tenure=held)


def _listen(cluster: KubernetesCluster, stacks: Mapping[str, StackSpec], holder: str) -> Listeners:
    scope = Scope(stacks=dict(stacks), cluster=cluster, kubernetes=cluster)
    return open_listeners(scope, holder=holder)


_TURN: Final = threading.Lock()


def _say(text: str) -> None:
    """Write a line to the log of the pod."""
    with _TURN:
        print(text, file=sys.stderr, flush=True)
