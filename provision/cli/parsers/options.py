"""Defines the options that verbs share, and loads the fleet that they select."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

DECLARATION: Final = Path("grapnel.yaml")
KEEP_RUNS: Final = 100
KEEP_DAYS: Final = 90
_MOST: Final = 100_000  # days or minutes by which a date can be moved
_SIGNERS: Final = (
    "use only bundles that are signed by one of these, an allowed_signers file (default: $GRAPNEL_SIGNERS)"
)


class _Pattern(argparse.Action):
    """Makes one pattern of the nodes that are named, as Ansible reads it: empty where none is."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, words: object, *_: object
    ) -> None:
        """Keep it; an empty name is a variable that was not set, and must not stand for all nodes."""
        names = list(words) if isinstance(words, list) else []
        if not all(name.strip(" ,:") for name in names):
            parser.error("the name of a NODE is empty")
        setattr(namespace, self.dest, ",".join(names))


def nodes_argument(parser: argparse.ArgumentParser, *, absent: str = "all", about: str = "") -> None:
    """Add the nodes that are named, kept as `limit`; ``absent`` says which are meant where none is."""
    text = f"{about}hosts, groups or patterns of the inventory, as Ansible has them (default: {absent})"
    parser.add_argument("limit", nargs="*", action=_Pattern, default="", metavar="NODE", help=text)


def common_arguments(parser: argparse.ArgumentParser, *, absent: str = "all", about: str = "") -> None:
    """Add the nodes, `--file`, `--inventory` and `--debug`; `load_fleet` reads them."""
    nodes_argument(parser, absent=absent, about=about)
    declaration_argument(parser)
    inventory_argument(parser)
    debug_argument(parser)


def declaration_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--file`; `load_fleet` reads it."""
    parser.add_argument(
        "-f",
        "--file",
        type=Path,
        default=DECLARATION,
        metavar="FILE",
        help="declaration (default: %(default)s)",
    )


def inventory_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--inventory`; `inventories_of` reads it."""
    parser.add_argument(
        "-i",
        "--inventory",
        action="append",
        default=[],
        metavar="PATH",
        help="Ansible inventory, may be repeated (default: inventory[.yaml], hosts.yaml, else ansible.cfg's)",
    )


def debug_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--debug` after the verb as well; the one before it keeps its value."""
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show tracebacks")


def run_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that verbs share beyond the choice of nodes; `build_context` reads them."""
    parser.set_defaults(bundle=None, signers=None, force=False, most_artifacts=None, early=None)
    parser.add_argument(
        "--payload",
        type=Path,
        metavar="DIR",
        help="archives for nodes (default: $GRAPNEL_PAYLOAD, dist/payload beside the declaration, those of a release)",
    )
    parser.add_argument(
        "--keep-artifacts", type=Path, metavar="DIR", help="keep Ansible's output and events of every run in DIR"
    )


def bundle_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--bundle`; `build_context` reads it."""
    parser.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="take all drivers and engines from this bundle alone, without a network on the nodes (see grapnel bundle)",
    )
    signers_argument(parser)


def signers_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--signers`; `signers_file` reads it."""
    parser.add_argument("--signers", type=Path, metavar="FILE", help=_SIGNERS)


def force_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--force`; `build_context` reads it."""
    parser.add_argument(
        "--force",
        action="store_true",
        help="overwrite what somebody edited of grapnel's in an engine's configuration; the edited file is kept",
    )


def connection_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--kubeconfig` and `--context`."""
    parser.add_argument(
        "--kubeconfig",
        type=Path,
        metavar="FILE",
        help="kubeconfig of the nodes' cluster (default: $KUBECONFIG, ~/.kube/config)",
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")


def cluster_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--kubeconfig`, `--context` and `--no-cluster`; `open_scope` reads them."""
    connection_arguments(parser)
    parser.add_argument(
        "--no-cluster",
        action="store_true",
        help="no scheduler is told: nothing is cordoned, drained or evicted, whatever the declaration says",
    )


def metrics_argument(parser: argparse.ArgumentParser) -> None:
    """Add the file that is kept for whoever reads metrics."""
    parser.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE.prom",
        help="keep metrics there for node_exporter's textfile collector",
    )


def recording_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json` and how long runs are kept; `recorded` reads them."""
    parser.add_argument(
        "--json", action="store_true", help="print what happened as JSON at the end (docs/contracts/run-report)"
    )
    parser.add_argument(
        "--keep-runs", type=_number, default=KEEP_RUNS, metavar="N", help="runs to keep (default: %(default)s)"
    )
    parser.add_argument(
        "--keep-days", type=_number, default=KEEP_DAYS, metavar="N", help="days to keep them (default: %(default)s)"
    )


def answer_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--json`; `Answers` is made of it."""
    parser.add_argument("--json", action="store_true", help="print the answer as JSON (docs/contracts/answer)")


def request_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the nodes and what finds them."""
    common_arguments(parser, absent="none")
    cluster_arguments(parser)
    answer_arguments(parser)


def pause_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what is paused: a cluster, or the machines of an inventory that has none."""
    declaration_argument(parser)
    inventory_argument(parser)
    debug_argument(parser)
    cluster_arguments(parser)
    answer_arguments(parser)


def verb_arguments(parser: argparse.ArgumentParser, *, absent: str = "all") -> None:
    """Add the options that both verbs have."""
    common_arguments(parser, absent=absent)
    run_arguments(parser)
    cluster_arguments(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask before changing machines")
    metrics_argument(parser)
    recording_arguments(parser)


def serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the page; `serve` reads them."""
    group = parser.add_argument_group("live page")
    group.add_argument(
        "--token-file", type=Path, metavar="FILE", help="the token that the page asks for (elsewhere than on loopback: "
        "one is made up and printed)",
    )  # fmt: skip
    group.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate of the page, with its chain, in PEM")
    group.add_argument("--tls-key", type=Path, metavar="FILE", help="its key")
    group.add_argument(
        "--behind-proxy",
        action="store_true",
        help="serve without TLS elsewhere than on loopback: a proxy in front has it",
    )
    group.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name under which the page is reached; may be repeated",
    )


def positive(text: str) -> int:
    """Return a number of at least 1 that a person wrote."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _MOST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_MOST}")
    return int(text)


def reason(text: str) -> str:
    """Return a reason as one line that is not too long to be shown."""
    from provision.cluster.pause import MAX_TEXT  # noqa: PLC0415 - start-up time

    line = " ".join(text.split())
    if len(line) > MAX_TEXT:
        raise argparse.ArgumentTypeError(f"it has {len(line)} characters, and {MAX_TEXT} may be")
    return line
