"""A real Prometheus, with a real alert, opens and closes a gate."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from lab.machine.errors import LabError
from lab.tools import promtool
from provision.declaration.spec.model import Expect
from provision.rollout.gates import GateKeeper
from provision.rollout.gates.prometheus import Samples, UnansweredError, ask
from tests.provision.gates.samples import FIRING, gate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from provision.declaration.spec.model import QueryGate

pytestmark = pytest.mark.functional

DEADLINE_S = 120.0
CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [rules.yml]
scrape_configs:
  - job_name: itself
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
RULES = """\
groups:
  - name: rules
    rules: [{{alert: AlertOfTheTest, expr: {expression}, labels: {{severity: critical}}}}]
"""


class Server:
    """A Prometheus that watches itself and has one alert."""

    def __init__(self, folder: Path, port: int) -> None:
        self.url, self._folder, self._port = f"http://127.0.0.1:{port}", folder, port
        (folder / "prometheus.yml").write_text(CONFIG.format(port=port))
        self.alert_on("vector(1) > 2")

    def alert_on(self, expression: str) -> None:
        (self._folder / "rules.yml").write_text(RULES.format(expression=expression))

    def command(self, program: Path) -> list[str]:
        return [
            str(program),
            f"--config.file={self._folder}/prometheus.yml",
            f"--storage.tsdb.path={self._folder}/data",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Server, subprocess.Popen[bytes]]]:
    try:
        program = promtool.ensure(promtool.PROMETHEUS)
    except LabError as error:
        pytest.skip(f"there is no Prometheus, and none can be fetched: {error}")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = Server(tmp_path, port)
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(server.command(program), stdout=log, stderr=log)
        try:
            yield server, process
        finally:
            process.terminate()
            process.wait()


def until(asked: QueryGate, holds: Callable[[Samples], bool]) -> Samples:
    """Ask until an answer is as it should be."""
    pause, end = threading.Event(), time.monotonic() + DEADLINE_S
    while True:
        try:
            samples = ask(asked)
        except UnansweredError:
            samples = Samples(-1)
        if holds(samples):
            return samples
        assert time.monotonic() < end, samples
        pause.wait(0.2)


def test_an_alert_closes_a_gate(running: tuple[Server, subprocess.Popen[bytes]]) -> None:
    server, process = running
    alerts = gate(server.url, query=FIRING)
    up = gate(server.url, name="up", query='up{job="itself"} == 1', expect=Expect.SOMETHING)
    assert until(up, lambda found: found.count == 1).shown[0].startswith('up{instance="127.0.0.1:')
    assert until(alerts, lambda found: found.count >= 0).count == 0

    server.alert_on("vector(3) > 2")
    process.send_signal(1)  # SIGHUP: read the rules again
    found = until(alerts, lambda found: found.count > 0)
    assert found.shown == ('ALERTS{alertname="AlertOfTheTest", severity="critical"}',)

    with pytest.raises(UnansweredError, match=r"the query was refused \(HTTP status 400\): .*parse error"):
        ask(gate(server.url, query="sum("))
    with pytest.raises(UnansweredError, match="the query returns a scalar"):
        ask(gate(server.url, query="1 + 1"))

    with GateKeeper([alerts, up], interval_s=0.2) as keeper:
        end = time.monotonic() + DEADLINE_S
        while not all(state.is_answered for state in keeper.states()):
            assert time.monotonic() < end
            threading.Event().wait(0.05)
        assert [state.is_open for state in keeper.states()] == [False, True]
