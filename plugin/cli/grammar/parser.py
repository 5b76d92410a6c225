"""The grammar of the command line. Not here: what the verbs do."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from plugin import __version__
from plugin.cli.grammar.exit_codes import epilog_of
from plugin.cli.grammar.options import add_options

_MAX_TIMEOUT_S = 600
_MAX_LAST = 1000


def build_parser(verb: str) -> argparse.ArgumentParser:
    """Return the parser of a command line that begins with this word."""
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="say more, and show tracebacks")
    configured = argparse.ArgumentParser(add_help=False, parents=[common])
    configured.add_argument("--config", type=Path, metavar="FILE", help="default: /etc/grapnel/node.json")
    settings = argparse.ArgumentParser(add_help=False, parents=[configured])
    add_options(settings)
    parser = argparse.ArgumentParser(prog="grapnel-node", description="Offers this node's GPUs to the kubelet.")
    parser.add_argument("--version", action="version", version=f"grapnel-node {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    run = verbs.add_parser("run", parents=[settings], help="run the daemon (in the foreground)", allow_abbrev=False)
    run.add_argument("--in-pod", action="store_true", help="as a pod of a DaemonSet: docs/device-plugin/daemonset.md")
    if verb == "run":
        return parser  # pods wait for the daemon, and the other verbs take as long again
    devices = verbs.add_parser(
        "devices", parents=[settings], help="show the GPUs as the driver lists them", allow_abbrev=False
    )
    devices.add_argument("--json", action="store_true", help="as JSON")
    labels = verbs.add_parser("labels", parents=[settings], help="show what the node is labelled", allow_abbrev=False)
    labels.add_argument("--json", action="store_true", help="as JSON")
    config = verbs.add_parser(
        "config", parents=[settings], help="show the configuration with all defaults", allow_abbrev=False
    )
    config.add_argument("--explain", action="store_true", help="every setting's value and where it came from")
    config.add_argument("--json", action="store_true", help="as JSON")
    holders = verbs.add_parser("holders", parents=[configured], help="show who holds a GPU, and what to do about it")
    holders.add_argument("--json", action="store_true", help="as JSON")
    _add_drift_verb(verbs, common)
    _add_release_verbs(verbs, configured)
    _add_health_verbs(verbs, configured)
    _add_explain_verb(verbs, configured)
    _add_mig_verbs(verbs, configured)
    _add_gpu_settings_verbs(verbs, configured)
    _add_gpushare_verbs(verbs, common)
    for name, made in verbs.choices.items():
        made.epilog = epilog_of(name)
    return parser


def _add_drift_verb(verbs: Any, common: argparse.ArgumentParser) -> None:
    words = "compare the node with what grapnel apply brought about on it"
    parser = verbs.add_parser("drift", parents=[common], help=words)
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="leave the result there as well, for the daemon; 0 once it is written",
    )


def _add_mig_verbs(verbs: Any, configured: argparse.ArgumentParser) -> None:
    acts = verbs.add_parser("mig", help="cut GPUs by MIG as declared").add_subparsers(
        dest="act", required=True, metavar="ACT"
    )
    words = {
        "show": "show how the GPUs are cut, and which profiles they have",
        "plan": "show what the declared layout would change",
        "apply": "cut the GPUs as declared",
        "restore": "cut the GPUs as they were before the last layout was applied",
    }
    for act, text in words.items():
        parser = acts.add_parser(act, parents=[configured], help=text)
        parser.add_argument("--json", action="store_true", help="as JSON")
        parser.add_argument("--timeout", type=_seconds, default=60, metavar="SECONDS", help="default: 60")
        if act in {"plan", "apply"}:
            parser.add_argument("--layout", type=Path, metavar="FILE", help="default: /etc/grapnel/mig-layout.json")
        if act == "apply":
            parser.add_argument("--at-start", action="store_true", help="only GPUs that have no instance")


def _add_gpu_settings_verbs(verbs: Any, configured: argparse.ArgumentParser) -> None:
    words = "set persistence mode, compute mode, power limits and clocks of GPUs as declared"
    acts = verbs.add_parser("gpu-settings", help=words).add_subparsers(dest="act", required=True, metavar="ACT")
    words_of = {
        "show": "show what the GPUs are set to, and within which limits",
        "plan": "show what the declared settings would change",
        "apply": "set what differs, and give back what is declared no more",
    }
    for act, text in words_of.items():
        parser = acts.add_parser(act, parents=[configured], help=text)
        parser.add_argument("--json", action="store_true", help="as JSON")
        parser.add_argument("--timeout", type=_seconds, default=60, metavar="SECONDS", help="default: 60")
        if act != "show":
            parser.add_argument("--file", type=Path, metavar="FILE", help="default: /etc/grapnel/gpu-settings.json")


def _add_gpushare_verbs(verbs: Any, common: argparse.ArgumentParser) -> None:
    words = {
        "inspect": "show who has which units of GPU memory in the cluster",
        "gpushare-extender": "serve kube-scheduler, so that pods with units of GPU memory fit on one card",
    }
    made = {verb: verbs.add_parser(verb, parents=[common], help=text) for verb, text in words.items()}
    for parser in made.values():
        parser.add_argument(
            "--resource", default="aliyun.com/gpu-mem", metavar="NAME", help="default: aliyun.com/gpu-mem"
        )
        parser.add_argument(
            "--kubeconfig", default="", metavar="FILE", help="default: KUBECONFIG, the service account, ~/.kube/config"
        )
    made["inspect"].add_argument("node", nargs="?", default="", metavar="NODE", help="this node alone")
    made["inspect"].add_argument("-d", "--details", action="store_true", help="each pod and its cards")
    made["gpushare-extender"].add_argument(
        "--listen", default="127.0.0.1:32766", metavar="ADDRESS", help="of this machine; default: 127.0.0.1:32766"
    )
    made["gpushare-extender"].add_argument(
        "--tls",
        default="",
        metavar="FOLDER",
        help="tls.crt, tls.key, and ca.crt, whose clients are answered",
    )


def _add_explain_verb(verbs: Any, configured: argparse.ArgumentParser) -> None:
    words = "say which pod got which GPUs and why, and what happened to each GPU"
    parser = verbs.add_parser("explain", parents=[configured], help=words)
    parser.add_argument("about", nargs="?", default="", metavar="POD|GPU", help="NAMESPACE/NAME, NAME, UUID or index")
    parser.add_argument("--last", type=_count, default=20, metavar="N", help="so many allocations; default: 20")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) <= _MAX_LAST):
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {_MAX_LAST}")
    return int(text)


def _add_health_verbs(verbs: Any, configured: argparse.ArgumentParser) -> None:
    health = verbs.add_parser("health", help="show the health of the GPUs, or decide it by hand")
    acts = health.add_subparsers(dest="act", required=True, metavar="ACT")
    show = acts.add_parser("show", parents=[configured], help="show what is open against each GPU")
    show.add_argument("--json", action="store_true", help="as JSON")
    named = {
        "set": "decide by hand, whatever is found, until it is cleared",
        "clear": "forget what was decided: evidence counts again",
    }
    for act, words in named.items():
        parser = acts.add_parser(act, parents=[configured], help=words)
        parser.add_argument("gpu", metavar="GPU", help="its UUID, or its index while the daemon runs")
        if act == "set":
            parser.add_argument("verdict", choices=("healthy", "unhealthy"))
            parser.add_argument("--reason", required=True, help="why: people read it in every place that shows the GPU")


def _add_release_verbs(verbs: Any, configured: argparse.ArgumentParser) -> None:
    for verb, timeout_s, words in (
        ("release", 30, "stop offering GPUs, let go of the driver, and say who still holds a GPU"),
        ("verify", 90, "compare driver and GPUs with what is expected"),
        ("resume", 90, "offer the GPUs again"),
        ("offered", 90, "say whether pods can be given the GPUs as node.json says"),
    ):
        parser = verbs.add_parser(verb, parents=[configured], help=words)
        parser.add_argument("--json", action="store_true", help="as JSON")
        parser.add_argument(
            "--timeout", type=_seconds, default=timeout_s, metavar="SECONDS", help=f"default: {timeout_s}"
        )
        if verb == "verify":
            parser.add_argument("--expect", required=True, metavar="FILE", help="the expectation; - is standard input")


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value <= _MAX_TIMEOUT_S:
        raise argparse.ArgumentTypeError(f"must be a number of seconds from 1 to {_MAX_TIMEOUT_S}")
    return value
