"""How wide output is: a terminal's width, and none where there is no terminal."""

from __future__ import annotations

import io

import pytest
from rich.table import Table

from provision.report.console import Text, make_console
from provision.report.terminal import HEAD_WIDTH, hanging

LONG = "/etc/kubernetes/kubelet-configuration/" + "a-folder/" * 30 + "kubelet.yaml"


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self) -> bool:
        """Return that it is one."""
        return True


@pytest.fixture(autouse=True)
def _no_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)


def test_a_pipe_gets_every_value_in_one_piece() -> None:
    """It was taken for a terminal of 80 columns: names and keys went on in the next line, where nothing finds them."""
    pipe = io.StringIO()
    table = Table(box=None, expand=True)
    table.add_column("path", overflow="fold", max_width=HEAD_WIDTH)
    table.add_column("node", no_wrap=True, max_width=4)
    table.add_row(LONG, "a-node-of-a-long-name")
    for each in (Text(LONG), hanging(Text(LONG), Text(LONG)), table):
        make_console(pipe).print(each)
    lines = pipe.getvalue().splitlines()
    assert [line.count(LONG) for line in lines] == [1, 2, 0, 1]
    assert "a-node-of-a-long-name" in lines[-1]
    assert max(map(len, lines)) < 3 * len(LONG), "and nothing is filled up to a width that is not there"


def test_columns_is_the_width_of_a_pipe_where_somebody_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    pipe = io.StringIO()
    make_console(pipe).print(Text(LONG))
    assert max(map(len, pipe.getvalue().splitlines())) == 60


def test_a_terminal_has_its_width() -> None:
    screen = Terminal()
    make_console(screen, width=80).print(Text(LONG))
    assert max(map(len, screen.getvalue().splitlines())) == 80
