"""The command line of the node daemon: arguments in, exit codes out.

What the exit codes mean is in `plugin.cli.grammar.exit_codes`. Everything heavy is imported by the verb that needs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from plugin.base.errors import EXIT_BUG, EXIT_FAILURE, EXIT_INTERRUPTED, NodeDaemonError
from plugin.cli.grammar.options import invocation_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_PLAIN = 3  # words of `run --config FILE`


def _parse(words: Sequence[str]) -> argparse.Namespace | SimpleNamespace:
    """Return the arguments. Those that a unit starts the daemon with need no parser, a tenth of the whole start."""
    is_plain = words == ["run"] or (len(words) == _PLAIN and words[0] == "run" and words[1] == "--config")
    if is_plain and not words[-1].startswith("-"):
        config = Path(words[2]) if len(words) == _PLAIN else None
        return SimpleNamespace(verb="run", debug=False, in_pod=False, config=config)
    from plugin.cli.grammar.parser import build_parser  # noqa: PLC0415 - see above

    return build_parser(next(iter(words), "")).parse_args(words)


def _dispatch(arguments: argparse.Namespace | SimpleNamespace) -> int:
    if arguments.verb == "run":
        from plugin.cli.run import run_daemon  # noqa: PLC0415 - gRPC is only loaded for the daemon

        return run_daemon(invocation_of(arguments), debug=arguments.debug, is_pod=arguments.in_pod)
    if arguments.verb in {"release", "verify", "resume"}:
        return _dispatch_release(arguments)
    if arguments.verb in {"gpu-settings", "health", "mig"}:
        return _dispatch_gpus(arguments)
    if arguments.verb in {"holders", "drift"}:
        return _dispatch_host(arguments)
    if arguments.verb == "labels":
        from plugin.cli.labels import show_labels  # noqa: PLC0415 - not needed by the others

        return show_labels(invocation_of(arguments), as_json=arguments.json)
    if arguments.verb == "explain":
        from plugin.cli.explain import explain_node  # noqa: PLC0415 - not needed for --version

        return explain_node(arguments.config, arguments.about, last=arguments.last, as_json=arguments.json)
    if arguments.verb == "devices":
        from plugin.cli.devices import show_devices  # noqa: PLC0415 - not needed for --version

        return show_devices(invocation_of(arguments), as_json=arguments.json)
    if arguments.verb in {"gpushare-extender", "inspect"}:
        return _dispatch_gpushare(arguments)
    from plugin.cli.show import explain_config, show_config  # noqa: PLC0415 - not needed for --version

    if arguments.explain:
        return explain_config(invocation_of(arguments), as_json=arguments.json)
    return show_config(invocation_of(arguments))


def _dispatch_host(arguments: argparse.Namespace | SimpleNamespace) -> int:
    if arguments.verb == "drift":
        from plugin.cli.drift import show_drift  # noqa: PLC0415 - not needed by the others

        return show_drift(arguments.output, as_json=arguments.json)
    from plugin.cli.holders import show_holders  # noqa: PLC0415 - not needed for --version

    return show_holders(arguments.config, as_json=arguments.json)


def _dispatch_gpus(arguments: argparse.Namespace | SimpleNamespace) -> int:
    if arguments.verb == "health":
        return _dispatch_health(arguments)
    return _dispatch_mig(arguments) if arguments.verb == "mig" else _dispatch_gpu_settings(arguments)


def _dispatch_mig(arguments: argparse.Namespace | SimpleNamespace) -> int:
    from plugin.cli.mig import change as mig_change  # noqa: PLC0415 - not needed for --version
    from plugin.cli.mig import show as mig  # noqa: PLC0415 - not needed for --version

    config, limits = arguments.config, {"timeout_s": arguments.timeout, "as_json": arguments.json}
    if arguments.act == "show":
        return mig.show_mig(config, **limits)
    if arguments.act == "restore":
        return mig_change.restore_mig(config, **limits)
    layout = arguments.layout or mig.DEFAULT_LAYOUT
    if arguments.act == "plan":
        return mig.plan_mig(config, layout, **limits)
    return mig_change.apply_mig(config, layout, at_start=arguments.at_start, **limits)


def _dispatch_gpu_settings(arguments: argparse.Namespace | SimpleNamespace) -> int:
    from plugin.changes.gpu_settings.store import DECLARED  # noqa: PLC0415 - not needed for --version
    from plugin.cli import gpu_settings  # noqa: PLC0415 - not needed for --version

    config, limits = arguments.config, {"timeout_s": arguments.timeout, "as_json": arguments.json}
    if arguments.act == "show":
        return gpu_settings.show_settings(config, **limits)
    file = arguments.file or DECLARED
    if arguments.act == "plan":
        return gpu_settings.plan_gpu_settings(config, file, **limits)
    return gpu_settings.apply_settings(config, file, **limits)


def _dispatch_gpushare(arguments: argparse.Namespace | SimpleNamespace) -> int:
    from plugin.cli import gpushare  # noqa: PLC0415 - not needed for --version

    resource, kubeconfig = arguments.resource, arguments.kubeconfig
    if arguments.verb == "inspect":
        return gpushare.inspect_cluster(arguments.node, resource, kubeconfig, is_detailed=arguments.details)
    address, tls_folder = arguments.listen, arguments.tls
    return gpushare.serve_extender(address, tls_folder, resource, kubeconfig, debug=arguments.debug)


def _dispatch_health(arguments: argparse.Namespace | SimpleNamespace) -> int:
    from plugin.cli import health  # noqa: PLC0415 - not needed for --version

    if arguments.act == "show":
        return health.show_health(arguments.config, as_json=arguments.json)
    if arguments.act == "clear":
        return health.clear_verdict(arguments.config, arguments.gpu)
    return health.set_verdict(
        arguments.config, arguments.gpu, is_healthy=arguments.verdict == "healthy", reason=arguments.reason
    )


def _dispatch_release(arguments: argparse.Namespace | SimpleNamespace) -> int:
    from plugin.cli.release import release_node, resume_node  # noqa: PLC0415 - not needed for --version

    if arguments.verb == "verify":
        from plugin.cli.verify import verify_node  # noqa: PLC0415 - the only verb with NVML in this process

        return verify_node(arguments.config, arguments.expect, timeout_s=arguments.timeout, as_json=arguments.json)
    act = release_node if arguments.verb == "release" else resume_node
    return act(arguments.config, timeout_s=arguments.timeout, as_json=arguments.json)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit code."""
    arguments = _parse(sys.argv[1:] if argv is None else list(argv))
    try:
        return _dispatch(arguments)
    except NodeDaemonError as error:
        print(f"grapnel-node: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        failure: BaseException = error
        code = EXIT_FAILURE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last line of defence: a bug gets its exit code
        print(f"grapnel-node: bug: {error!r}; run again with --debug and report it", file=sys.stderr)
        failure = error
        code = EXIT_BUG
    if arguments.debug:
        raise failure
    return code
