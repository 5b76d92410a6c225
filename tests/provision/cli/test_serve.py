"""`grapnel status --serve`: where it may be served, and with what."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from provision.base.errors import GrapnelError, UsageError
from provision.cli.look.serve import parse_address, read_token, serve, settings_of
from provision.cli.parsers.arguments import ARGUMENTS
from tests import peers
from tests.provision.status_page.fleets import FakeReader, fleet

ROOT = Path(__file__).parents[3]


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    ARGUMENTS["status"](parser)
    return parser.parse_args(words)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return peers.certificate(tmp_path_factory.mktemp("tls"), "localhost", "DNS:localhost,IP:127.0.0.1")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        ("[::1]:8470", ("::1", 8470)),
        ("8470", ("127.0.0.1", 8470)),
        ("status.example:1", ("status.example", 1)),
    ],
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":80", "host:", "host:99999", "host:x", "http://host"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not ADDRESS:PORT"):
        parse_address(text)


def test_without_an_address_it_is_loopback_and_needs_no_token() -> None:
    settings, is_new = settings_of(options("--serve"))

    assert (settings.address, settings.port, settings.token, is_new) == ("127.0.0.1", 8470, "", False)


def test_elsewhere_it_needs_tls_or_a_proxy() -> None:
    with pytest.raises(UsageError, match="can be reached from elsewhere"):
        settings_of(options("--serve", "10.0.0.1:80"))


def test_elsewhere_a_token_is_made_up() -> None:
    settings, is_new = settings_of(
        options("--serve", "10.0.0.1:80", "--behind-proxy", "--allow-host", "Status.Example")
    )
    other, _ = settings_of(options("--serve", "10.0.0.1:80", "--behind-proxy"))

    assert is_new
    assert len(settings.token) == 32
    assert settings.token != other.token
    assert settings.names == {"status.example"}


def test_a_certificate_and_its_key_are_used(certificate: tuple[str, str]) -> None:
    cert, key = certificate
    settings, _ = settings_of(options("--serve", "10.0.0.1:80", "--tls-cert", cert, "--tls-key", key))

    assert settings.tls is not None
    assert settings.tls.minimum_version >= ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tls-cert", "CERT"], "belong together"),
        (["--tls-cert", "CERT", "--tls-key", "/nowhere"], "No such file"),
        (["--tls-cert", "CERT", "--tls-key", "CERT"], "--tls-key"),
    ],
    ids=["no key", "no such key", "not a key"],
)
def test_a_certificate_that_cannot_be_used_is_told(
    words: list[str], message: str, certificate: tuple[str, str]
) -> None:
    with pytest.raises(UsageError, match=message):
        settings_of(options("--serve", *[certificate[0] if word == "CERT" else word for word in words]))


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("a-token-that-is-long-enough\n", 0o644, "others may read it"),
        ("short\n", 0o600, "at least 16 characters"),
        ("two words that are long", 0o600, "no space"),
        (None, 0o600, "No such file"),
    ],
)
def test_a_token_that_is_not_fit_is_refused(text: str | None, mode: int, message: str, tmp_path: Path) -> None:
    file = tmp_path / "token"
    if text is not None:
        file.write_text(text)
        file.chmod(mode)

    with pytest.raises(UsageError, match=message) as raised:
        read_token(file)
    assert (text or "x").strip() not in str(raised.value.message)


def test_a_token_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("a-token-that-is-long-enough\n")
    file.chmod(0o600)

    settings, is_new = settings_of(options("--serve", "--token-file", str(file)))

    assert (settings.token, is_new) == ("a-token-that-is-long-enough", False)


def test_page_and_json_are_not_asked_for_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        options("--serve", "--json")
    assert "not allowed with" in capsys.readouterr().err


@pytest.mark.functional
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_page_is_served_until_a_signal_ends_it(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text("all: {hosts: {n1: {}, n2: {}}}\n")
    (tmp_path / "grapnel.yaml").write_text(
        "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\nspec: {driver: {version: '550.163.01'}}\n"
    )
    command = [sys.executable, "-P", "-c", "from provision.cli import main; raise SystemExit(main())"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    with subprocess.Popen(
        [*command, "status", "--no-cluster", "--serve", "127.0.0.1:0"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # noqa: PLW1509 - below nohup it is ignored
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().removeprefix("serving ").strip()
        with urllib.request.urlopen(f"{url}metrics", timeout=60) as answer:  # noqa: S310 - of this test
            page = answer.read().decode()
        process.send_signal(number)
        assert process.wait(60) == 0

    assert 'grapnel_rollout_nodes{state="idle"} 2' in page


def test_an_address_that_somebody_else_has_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(GrapnelError, match=f"127.0.0.1:{port} cannot be served: Address already in use"):
            serve(options("--serve", f"127.0.0.1:{port}"), FakeReader(fleet(10, 1, failed=0, flying=1)), print)
