"""TLS with client certificates: who is answered, renewed files, and handshakes that never come."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
from typing import TYPE_CHECKING, cast

import pytest

from lab.cluster.certificates import API_SERVER, SCHEDULER, Certificates
from plugin.base.errors import ConfigError
from plugin.base.log import Logger
from plugin.gpushare.identity import Identity
from plugin.gpushare.server import PREFIX, extender_server
from tests.plugin.gpushare.test_server import Deaf, head

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from plugin.gpushare.extender import Extender

FILTER = head(f"POST {PREFIX}/filter HTTP/1.1", "Content-Type: application/json", "Content-Length: 2") + b"{}"
INSPECT = head(f"GET {PREFIX}/inspect HTTP/1.1")
READY = head("GET /healthz HTTP/1.1")


@pytest.fixture
def folder(tmp_path: Path, certificates: Certificates) -> Path:
    return put(tmp_path / "tls", certificates)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    made = Certificates(tmp_path_factory.mktemp("others") / "pki")
    made.prepare("127.0.0.1")
    return made


def put(folder: Path, made: Certificates) -> Path:
    """Lay the files of a Secret down; each is replaced, as a kubelet and cert-manager do."""
    folder.mkdir(exist_ok=True)
    names = {"tls.crt": made.certificate(API_SERVER), "tls.key": made.key(API_SERVER), "ca.crt": made.certificate("ca")}
    for name, path in names.items():
        shutil.copy(path, folder / f".{name}")
        (folder / f".{name}").rename(folder / name)
    return folder


@contextlib.asynccontextmanager
async def served(folder: Path, patience_s: float = 30.0) -> AsyncIterator[int]:
    server = extender_server(
        cast("Extender", Deaf()), Logger(), patience_s=patience_s, identity=Identity(folder, Logger())
    )
    await server.start("127.0.0.1", 0)
    try:
        yield server.ports[0]
    finally:
        await server.close()


async def ask(port: int, request: bytes, ca: Certificates, client: tuple[Certificates, str] | None) -> str:
    """Return the status of the answer, "" for none."""
    context = ssl.create_default_context(cafile=str(ca.certificate("ca")))
    if client is not None:
        made, name = client
        context.load_cert_chain(made.certificate(name), made.key(name))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(request)
        answer = await reader.read()
        writer.close()
    except OSError:
        return ""
    return answer[9:12].decode()


@pytest.mark.parametrize(
    ("client", "statuses"),
    [
        pytest.param("the scheduler's", ("200", "200", "200"), id="a certificate of the scheduler"),
        pytest.param("", ("403", "403", "200"), id="no certificate: it may ask whether there is one who answers"),
        pytest.param("others'", ("", "", ""), id="a certificate of another authority"),
        pytest.param("a server's", ("", "", ""), id="a certificate that is for servers alone"),
    ],
)
def test_who_is_answered(
    folder: Path, certificates: Certificates, others: Certificates, client: str, statuses: tuple[str, ...]
) -> None:
    known = {
        "": None,
        "the scheduler's": (certificates, SCHEDULER),
        "others'": (others, SCHEDULER),
        "a server's": (certificates, API_SERVER),
    }[client]

    async def run() -> None:
        async with served(folder) as port:
            found = [await ask(port, request, certificates, known) for request in (FILTER, INSPECT, READY)]
            assert tuple(found) == statuses

    asyncio.run(run())


def test_who_speaks_no_tls_is_not_answered(folder: Path) -> None:
    async def run() -> None:
        async with served(folder) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(FILTER)
            with contextlib.suppress(OSError):
                assert b"200" not in await reader.read()
            writer.close()

    asyncio.run(run())


def test_a_scheduler_gets_in_past_hundreds_of_handshakes_that_never_come(
    folder: Path, certificates: Certificates
) -> None:
    async def run() -> None:
        async with served(folder) as port:
            silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(300)]
            asked = [ask(port, FILTER, certificates, (certificates, SCHEDULER)) for _ in range(50)]
            assert set(await asyncio.gather(*asked)) == {"200"}
            for _, writer in silent:
                writer.close()

    asyncio.run(run())


def test_a_handshake_that_never_comes_is_ended(folder: Path) -> None:
    async def run() -> None:
        async with served(folder, patience_s=0.2) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(OSError):
                assert await reader.read() == b""
            writer.close()

    asyncio.run(run())


def test_renewed_files_count_with_the_next_connection(
    folder: Path, certificates: Certificates, others: Certificates
) -> None:
    """A certificate that nobody reads again ends all placing of pods on the day on which it expires."""

    async def run() -> None:
        async with served(folder) as port:
            put(folder, others)
            assert await ask(port, FILTER, others, (others, SCHEDULER)) == "200"
            assert await ask(port, FILTER, others, (certificates, SCHEDULER)) == ""

    asyncio.run(run())


@pytest.mark.parametrize("spoil", ["no key", "nonsense", "of another one"])
def test_the_former_files_count_while_those_that_are_there_cannot_be_used(
    folder: Path, certificates: Certificates, others: Certificates, spoil: str
) -> None:
    async def run() -> None:
        async with served(folder) as port:
            if spoil == "no key":
                (folder / "tls.key").unlink()
            else:
                text = "nonsense" if spoil == "nonsense" else others.key(API_SERVER).read_text()
                (folder / "tls.key").write_text(text)
            for _ in range(2):
                assert await ask(port, FILTER, certificates, (certificates, SCHEDULER)) == "200"
            put(folder, others)
            assert await ask(port, FILTER, others, (others, SCHEDULER)) == "200"

    asyncio.run(run())


@pytest.mark.parametrize("name", ["tls.crt", "tls.key", "ca.crt"])
@pytest.mark.parametrize("content", [None, "nonsense"])
def test_files_that_cannot_be_used_are_named_at_the_start(folder: Path, name: str, content: str | None) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(ConfigError, match="cannot be used for TLS") as raised:
        Identity(folder, Logger())
    assert str(folder / name if content is None else folder) in str(raised.value)
