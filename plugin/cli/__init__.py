"""The command line of the node daemon: arguments in, exit codes out.

0 done, 1 expected failure, 2 usage, 70 a bug. Everything heavy is imported by the verb that needs it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from plugin import __version__
from plugin.errors import NodeDaemonError

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXIT_FAILURE = 1
_EXIT_BUG = 70


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="say more, and show tracebacks")
    configured = argparse.ArgumentParser(add_help=False, parents=[common])
    configured.add_argument("--config", type=Path, metavar="FILE", help="default: /etc/grapnel/node.json")
    parser = argparse.ArgumentParser(prog="grapnel-node", description="Offers this node's GPUs to the kubelet.")
    parser.add_argument("--version", action="version", version=f"grapnel-node {__version__}")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verbs.add_parser("run", parents=[configured], help="run the daemon (in the foreground)")
    devices = verbs.add_parser("devices", parents=[configured], help="show the GPUs as the driver lists them")
    devices.add_argument("--json", action="store_true", help="as JSON")
    verbs.add_parser("config", parents=[configured], help="show the configuration with all defaults")
    return parser


def _dispatch(arguments: argparse.Namespace) -> int:
    if arguments.verb == "run":
        from plugin.cli.run import run_daemon  # noqa: PLC0415 - gRPC is only loaded for the daemon

        return run_daemon(arguments.config, debug=arguments.debug)
    from plugin.cli.show import show_config, show_devices  # noqa: PLC0415 - not needed for --version

    if arguments.verb == "devices":
        return show_devices(arguments.config, as_json=arguments.json)
    return show_config(arguments.config)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    arguments = _parser().parse_args(argv)
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
