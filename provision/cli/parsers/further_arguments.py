"""Defines the options of verbs that are around nodes, and of those that the chart runs, as `arguments.py` does."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from provision.cli.parsers.options import (
    common_arguments,
    debug_argument,
    declaration_argument,
    positive,
    run_arguments,
    signers_argument,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

CONTROLLER_PARALLEL: Final = 20
NAMESPACE: Final = "grapnel-system"
PROBES: Final = "0.0.0.0:8080"
MINUTES: Final = 3
SHELLS: Final = ("bash", "zsh", "fish")
_FROM: Final = "a host of the inventory with a network, which collects for its distribution; one for each distribution"
_VERSION: Final = "a version or branch, may be repeated (default: what is declared for the nodes)"
_KERNEL: Final = "a kernel that needs the module, may be repeated (default: the kernels of the nodes)"
_MODULES: Final = "modules that are built already, as `dkms mktarball --binaries-only` packs them; may be repeated"
_SIGN: Final = "sign it with this ssh key, into FILE.sig (default: $GRAPNEL_SIGNING_KEY, else it is not signed)"
_SET: Final = "a staged set, copied from a node of that distribution, such as debian-13=./550; may be repeated"
FLAVOURS: Final = ("none", "open", "proprietary")


def _bundle(parser: argparse.ArgumentParser) -> None:
    debug_argument(parser)
    parser.set_defaults(overview=parser)
    actions = parser.add_subparsers(title="actions", metavar="ACTION", dest="action")
    create = actions.add_parser("create", help="write a bundle, from what nodes collect or have staged")
    _bundle_create(create)
    verify = actions.add_parser("verify", help="check every byte of a bundle, and show what is in it")
    verify.add_argument("target", type=Path, metavar="FILE")
    signers_argument(verify)
    for action in (create, verify):
        action.set_defaults(overview=None)
        action.add_argument("--json", action="store_true", help="print its list as JSON (docs/contracts/bundle)")


def _bundle_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=Path, metavar="FILE", help="the bundle to write")
    _add_repeated(parser, "--from", "NODE", "collectors", _FROM)
    common_arguments(parser, absent="those of --from", about="the nodes that it is for, whose facts are read: ")
    _add_repeated(parser, "--version", "V", "versions", _VERSION)
    _add_repeated(parser, "--kernel", "RELEASE", "kernels", _KERNEL)
    parser.add_argument("--flavour", choices=FLAVOURS, help="kernel module (default: what the GPUs need)")
    _add_repeated(parser, "--modules", "[DISTRIBUTION=]FILE", "archives", _MODULES)
    parser.add_argument("--no-build", action="store_true", help="build no modules for kernels without --modules")
    _add_repeated(parser, "--set", "DISTRIBUTION=DIR", "sets", _SET)
    run_arguments(parser)
    parser.add_argument("--collection", type=Path, metavar="DIR", help="the Ansible collection (default: this one's)")
    parser.add_argument("--keys", type=Path, metavar="DIR", help="public keys of package sources")
    parser.add_argument("--drivers-only", action="store_true", help="leave payload and collection out")
    parser.add_argument("--sign", type=Path, metavar="KEY", help=_SIGN)


def _add_repeated(parser: argparse.ArgumentParser, option: str, metavar: str, name: str, text: str) -> None:
    """Add an option that may be repeated."""
    parser.add_argument(option, action="append", default=[], metavar=metavar, dest=name, help=text)


def _help(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", nargs="?", default="", metavar="PAGE", help="such as docs/upgrade.md, or a verb")
    debug_argument(parser)


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell that completes")
    debug_argument(parser)


def _version(parser: argparse.ArgumentParser) -> None:
    declaration_argument(parser)
    parser.add_argument("--payload", type=Path, metavar="DIR", help="archives for nodes (default: as for plan)")
    parser.add_argument("--json", action="store_true", help="print it as JSON")
    debug_argument(parser)


def _controller(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--image",
        default=os.environ.get("GRAPNEL_IMAGE"),
        metavar="IMAGE",
        help="the image of Jobs on nodes: the one that this process runs in (default: $GRAPNEL_IMAGE)",
    )
    parser.add_argument(
        "--pull-secret", action="append", default=[], metavar="NAME", help="a Secret for that image's registry"
    )
    parser.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", NAMESPACE),
        help=f"where Jobs are made (default: $POD_NAMESPACE, {NAMESPACE})",
    )
    parser.add_argument(
        "--holder",
        default=os.environ.get("POD_NAME"),
        metavar="NAME",
        help="what the lease calls this process (default: $POD_NAME)",
    )
    parser.add_argument(
        "--node",
        default=os.environ.get("NODE_NAME", ""),
        metavar="NAME",
        help="the Node that this process runs on, so that its GpuStack can say so (default: $NODE_NAME)",
    )
    parser.add_argument(
        "--secret-hosts",
        action="append",
        default=[],
        metavar="SECRET=HOST,...",
        help="where tokens and keys below /etc/grapnel/controller/SECRET may be used: HOST or HOST:PORT; nowhere else",
    )
    parser.add_argument(
        "--compute-domains",
        action="store_true",
        help="serve ComputeDomains: which of them has which NVLink clique, on nodes with plugin.computeDomains",
    )
    parser.add_argument(
        "--parallel",
        type=positive,
        default=CONTROLLER_PARALLEL,
        metavar="N",
        help=f"how many nodes of a stack are changed in place, or looked at, at once (default: {CONTROLLER_PARALLEL})",
    )
    parser.add_argument(
        "--probes",
        default=PROBES,
        metavar="ADDRESS:PORT",
        help=f"where /healthz, /readyz and /metrics are served (default: {PROBES})",
    )
    parser.add_argument(
        "--payload", type=Path, metavar="DIR", help="archives for nodes (default: those of this installation)"
    )
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="outside of a pod: how to reach the cluster")
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")


def _agent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--request",
        type=Path,
        required=True,
        metavar="FILE",
        help="what to do, with what to seal the log with beside it: docs/contracts/node-job",
    )
    parser.add_argument(
        "--host-pid", type=int, default=1, metavar="PID", help="a process of the host, as seen from here (default: 1)"
    )


def _uninstall(parser: argparse.ArgumentParser) -> None:
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


ARGUMENTS: Final[Mapping[str, Callable[[argparse.ArgumentParser], None]]] = {
    "bundle": _bundle,
    "help": _help,
    "completion": _completion,
    "version": _version,
    "controller": _controller,
    "agent": _agent,
    "uninstall": _uninstall,
}
