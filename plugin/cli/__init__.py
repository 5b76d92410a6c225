"""The command line of the node daemon: arguments in, exit codes out.

0 done, 1 expected failure, 2 usage, 3 done but not as wanted (`release`: still held, `verify`: not as expected),
70 a bug. Everything heavy is imported by the verb that needs it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plugin import __version__
from plugin.cli.options import add_options, given_by
from plugin.errors import NodeDaemonError

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXIT_FAILURE = 1
_EXIT_BUG = 70
_MAX_TIMEOUT_S = 600
_MAX_LAST = 1000


def _parser(verb: str) -> argparse.ArgumentParser:
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
    verbs.add_parser("run", parents=[settings], help="run the daemon (in the foreground)", allow_abbrev=False)
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
    _add_release_verbs(verbs, configured)
    _add_health_verbs(verbs, configured)
    _add_explain_verb(verbs, configured)
    return parser


def _add_explain_verb(verbs: Any, configured: argparse.ArgumentParser) -> None:  # noqa: ANN401 - argparse does not name its type
    words = "say which pod got which GPUs and why, and what happened to each GPU"
    parser = verbs.add_parser("explain", parents=[configured], help=words)
    parser.add_argument("about", nargs="?", default="", metavar="POD|GPU", help="NAMESPACE/NAME, NAME, UUID or index")
    parser.add_argument("--last", type=_count, default=20, metavar="N", help="so many allocations; default: 20")
    parser.add_argument("--json", action="store_true", help="as JSON")


def _count(text: str) -> int:
    value = int(text)
    if not 0 <= value <= _MAX_LAST:
        raise ValueError
    return value


def _add_health_verbs(verbs: Any, configured: argparse.ArgumentParser) -> None:  # noqa: ANN401 - argparse does not name its type
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


def _add_release_verbs(verbs: Any, configured: argparse.ArgumentParser) -> None:  # noqa: ANN401 - argparse does not name its type
    for verb, timeout_s, words in (
        ("release", 30, "stop offering GPUs, let go of the driver, and say who still holds a GPU"),
        ("verify", 90, "compare driver and GPUs with what is expected"),
        ("resume", 90, "offer the GPUs again"),
    ):
        parser = verbs.add_parser(verb, parents=[configured], help=words)
        parser.add_argument("--json", action="store_true", help="as JSON")
        parser.add_argument(
            "--timeout", type=_seconds, default=timeout_s, metavar="SECONDS", help=f"default: {timeout_s}"
        )
        if verb == "verify":
            parser.add_argument("--expect", required=True, metavar="FILE", help="the expectation; - is standard input")


def _seconds(text: str) -> float:
    value = float(text)
    if not 1 <= value <= _MAX_TIMEOUT_S:
        raise ValueError
    return value


def _dispatch(arguments: argparse.Namespace) -> int:
    if arguments.verb == "run":
        from plugin.cli.run import run_daemon  # noqa: PLC0415 - gRPC is only loaded for the daemon

        return run_daemon(given_by(arguments), debug=arguments.debug)
    if arguments.verb in {"release", "verify", "resume"}:
        return _dispatch_release(arguments)
    if arguments.verb == "health":
        return _dispatch_health(arguments)
    if arguments.verb == "holders":
        from plugin.cli.holders import show_holders  # noqa: PLC0415 - not needed for --version

        return show_holders(arguments.config, as_json=arguments.json)
    if arguments.verb == "labels":
        from plugin.cli.labels import show_labels  # noqa: PLC0415 - not needed by the others

        return show_labels(given_by(arguments), as_json=arguments.json)
    if arguments.verb == "explain":
        from plugin.cli.explain import explain_node  # noqa: PLC0415 - not needed for --version

        return explain_node(arguments.config, arguments.about, last=arguments.last, as_json=arguments.json)
    if arguments.verb == "devices":
        from plugin.cli.devices import show_devices  # noqa: PLC0415 - not needed for --version

        return show_devices(given_by(arguments), as_json=arguments.json)
    from plugin.cli.show import explain_config, show_config  # noqa: PLC0415 - not needed for --version

    if arguments.explain:
        return explain_config(given_by(arguments), as_json=arguments.json)
    return show_config(given_by(arguments))


def _dispatch_health(arguments: argparse.Namespace) -> int:
    from plugin.cli import health  # noqa: PLC0415 - not needed for --version

    if arguments.act == "show":
        return health.show_health(arguments.config, as_json=arguments.json)
    if arguments.act == "clear":
        return health.clear_verdict(arguments.config, arguments.gpu)
    return health.set_verdict(
        arguments.config, arguments.gpu, is_healthy=arguments.verdict == "healthy", reason=arguments.reason
    )


def _dispatch_release(arguments: argparse.Namespace) -> int:
    from plugin.cli.release import release_node, resume_node  # noqa: PLC0415 - not needed for --version

    if arguments.verb == "verify":
        from plugin.cli.verify import verify_node  # noqa: PLC0415 - the only verb with NVML in this process

        return verify_node(arguments.config, arguments.expect, timeout_s=arguments.timeout, as_json=arguments.json)
    act = release_node if arguments.verb == "release" else resume_node
    return act(arguments.config, timeout_s=arguments.timeout, as_json=arguments.json)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    words = sys.argv[1:] if argv is None else argv
    arguments = _parser(next(iter(words), "")).parse_args(words)
    try:
        return _dispatch(arguments)
    except NodeDaemonError as error:
        print(f"grapnel-node: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        failure: BaseException = error
        code = _EXIT_FAILURE
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug gets its exit code
        print(f"grapnel-node: bug: {error!r}; run again with --debug and report it", file=sys.stderr)
        failure = error
        code = _EXIT_BUG
    if arguments.debug:
        raise failure
    return code
