"""Serves the live page of `grapnel status --serve`: where, to whom, and until when."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from provision.base.errors import ExitCode, GrapnelError, UsageError
from provision.cli.parsers.arguments import PAGE
from provision.report.runs.remedies import BARE
from provision.report.status_page.access import is_loopback, new_token
from provision.report.status_page.feed import Feed
from provision.report.status_page.server import PageServer, Settings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from provision.report.runs.remedies import Invocation
    from provision.rollout.status.model import Reader
    from provision.rollout.status.words import Last

MIN_TOKEN: Final = 16
_MAX_PORT: Final = 65535


def serve(
    args: argparse.Namespace,
    reader: Reader,
    say: Callable[[str], None],
    invocation: Invocation = BARE,
    runs: Callable[[], Mapping[str, Last]] = dict,
) -> int:
    """Serve until Ctrl-C or SIGTERM; ``runs`` tells the last run of each node.

    Raises UsageError, ClusterError, and GrapnelError for an address that cannot be had.
    """
    settings, is_new = settings_of(args)
    feed = Feed(reader, invocation=invocation, runs=runs)
    try:
        server = PageServer(feed, settings)
    except OSError as error:
        raise GrapnelError(
            f"{args.serve} cannot be served: {error.strerror}", hint="name another one: `--serve ADDRESS:PORT`"
        ) from error
    with server:
        feed.start()
        say(f"serving {server.url}")
        if is_new:
            say(f"token: {settings.token}")
        say("Ctrl-C ends it; it changes nothing")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            return ExitCode.DONE
        finally:
            feed.close()
    return ExitCode.DONE


def settings_of(args: argparse.Namespace) -> tuple[Settings, bool]:
    """Return where and to whom the page is served, and whether its token is new."""
    address, port = parse_address(args.serve)
    tls = _tls(args.tls_cert, args.tls_key)
    if not is_loopback(address) and tls is None and not args.behind_proxy:
        raise UsageError(
            f"{address} can be reached from elsewhere, and without TLS everybody on the way reads the token",
            hint="add --tls-cert and --tls-key, or --behind-proxy if a proxy in front has TLS; or serve it on "
            "127.0.0.1 and reach it through ssh -L",
        )
    token = "" if args.token_file is None else read_token(args.token_file)
    is_new = not token and not is_loopback(address)
    names = frozenset(name.lower() for name in args.allow_host)
    return Settings(address=address, port=port, token=new_token() if is_new else token, names=names, tls=tls), is_new


def parse_address(text: str) -> tuple[str, int]:
    """Return ``ADDRESS:PORT``, ``[ADDRESS]:PORT`` or a port alone, which is one of loopback, as a pair."""
    address, colon, port = text.rpartition(":")
    address = address.removeprefix("[").removesuffix("]") if colon else "127.0.0.1"
    if not port.isdecimal() or int(port) > _MAX_PORT or not address:
        raise UsageError(f"--serve: '{text}' is not ADDRESS:PORT", hint=f"such as {PAGE}")
    return address, int(port)


def read_token(path: Path) -> str:
    """Return the token in a file. Raises UsageError where others may read it, or it could be guessed."""
    try:
        mode = path.stat().st_mode
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from error
    if mode & 0o077:
        raise UsageError(f"--token-file {path}: others may read it", hint=f"chmod 600 {path}")
    if len(token) < MIN_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"--token-file {path}: a token has at least {MIN_TOKEN} characters and no space",
            hint="openssl rand -hex 24",
        )
    return token


def _tls(cert: Path | None, key: Path | None) -> ssl.SSLContext | None:
    if cert is None and key is None:
        return None
    if cert is None or key is None:
        raise UsageError("--tls-cert and --tls-key belong together", hint="add the other one")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        raise UsageError(
            f"--tls-cert {cert}, --tls-key {key}: {error.reason or 'not a certificate and its key'}"
        ) from error
    except OSError as error:
        raise UsageError(f"--tls-cert {cert}, --tls-key {key}: {error.strerror}") from error
    return context
