"""The manual page: everything that the parsers know, in a form that groff takes without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from provision.base.errors import ExitCode
from provision.cli import VERBS, whole_parser
from provision.cli.around.completion import arguments_of
from provision.cli.parsers.exit_codes import OF_VERBS
from provision.cli.parsers.man import ENVIRONMENT, _text, below, page

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def written() -> str:
    return page(whole_parser())


def section(page_text: str, verb: str) -> str:
    return re.split(r"^\.S[SH] ", page_text.split(f".SS grapnel {verb}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_its_arguments_and_exit_codes(written: str, verb: str) -> None:
    told = section(written, verb)

    for action in arguments_of(below(whole_parser())[verb]):
        names = action.option_strings or [str(action.metavar or action.dest)]
        terms = [_text(name) for name in names if action.metavar or action.option_strings]
        assert all(term in told for term in terms), names
    assert all(_text(meaning) in told for meaning in OF_VERBS[verb].values())


def test_the_verbs_are_those_of_the_command_line(written: str) -> None:
    assert re.findall(r"^\.SS grapnel (\S+)$", written, re.MULTILINE) == list(VERBS)


def test_every_exit_code_is_explained(written: str) -> None:
    table = written.split(".SH EXIT STATUS\n")[1].split(".SH ", maxsplit=1)[0]
    assert re.findall(r"\\fB(\d+)\\fR", table) == [str(int(code)) for code in sorted(ExitCode)]


@pytest.mark.parametrize("name", sorted(ENVIRONMENT))
def test_a_variable_that_is_named_is_read(name: str) -> None:
    sources = (ROOT / "provision").rglob("*.py")
    assert any(name in path.read_text() for path in sources if path.name != "man.py")


@pytest.mark.parametrize(
    ("words", "roff"),
    [
        pytest.param("--no-wait", r"\-\-no\-wait", id="hyphens that can be copied"),
        pytest.param(r"a\b", r"a\eb", id="a backslash"),
        pytest.param(".hidden", r"\&.hidden", id="a full stop in front"),
        pytest.param("'quoted'", r"\&'quoted'", id="a quote in front"),
        pytest.param("see `grapnel plan`", r"see \fBgrapnel plan\fR", id="code"),
        pytest.param("two\n   lines", "two lines", id="line ends"),
    ],
)
def test_words_are_printed_as_they_are(words: str, roff: str) -> None:
    assert _text(words) == roff


@pytest.mark.slow
def test_the_page_is_written_the_same_however_wide_the_terminal_is(tmp_path: Path) -> None:
    for columns in ("40", "200"):
        command = [sys.executable, "-P", "-m", "provision.cli.parsers.man", str(tmp_path / columns)]
        environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "COLUMNS": columns}
        subprocess.run(command, check=True, env=environment, timeout=60)

    assert (tmp_path / "40").read_text() == (tmp_path / "200").read_text()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("groff") is None, reason="there is no groff: apt-get install groff-base")
def test_groff_has_nothing_to_warn_of(written: str) -> None:
    command = ("groff", "-man", "-ww", "-Tutf8", "-Kutf8")
    done = subprocess.run(command, input=written, capture_output=True, text=True, check=True, timeout=60)

    assert done.stderr == ""
    assert "grapnel apply" in re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
