"""The command line: verbs, exit codes, and what a person reads when something fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provision import __version__
from provision.base.errors import GrapnelError
from provision.cli import VERBS, main
from provision.cli.parsers.verbs import GROUPS, MODULES

if TYPE_CHECKING:
    import argparse

ROOT = Path(__file__).parents[3]
COMMAND = [sys.executable, "-c", "import sys; from provision.cli import main; sys.exit(main())"]


@dataclass
class FakeVerb:
    """A verb with a given outcome."""

    end: BaseException | int
    limits: list[str] = field(default_factory=list)

    def run(self, args: argparse.Namespace) -> int:
        self.limits.append(args.limit)
        if isinstance(self.end, BaseException):
            raise self.end
        return self.end


def run_verb(end: BaseException | int, *options: str) -> int:
    return main(["plan", *options], load=lambda _name: FakeVerb(end))


@pytest.mark.parametrize(
    ("end", "code", "words"),
    [
        pytest.param(0, 0, "", id="done"),
        pytest.param(1, 1, "", id="a verb's own code"),
        pytest.param(
            GrapnelError("n1 is away", hint="wait"),
            1,
            "grapnel: error: n1 is away\n  hint: wait\n",
            id="expected failure",
        ),
        pytest.param(KeyboardInterrupt(), 130, "grapnel: interrupted\n", id="interrupted"),
        pytest.param(
            ZeroDivisionError("oops"),
            70,
            "grapnel: error: a bug: ZeroDivisionError: oops\n"
            "  hint: run it again with --debug and report what it prints\n",
            id="a bug",
        ),
    ],
)
def test_exit_codes_and_words(
    end: BaseException | int, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_verb(end) == code
    assert capsys.readouterr().err == words


NODES: dict[str, tuple[str, ...]] = {
    "bundle": ("create", "x.bundle"),
    **dict.fromkeys(("init", "check", "plan", "doctor", "simulate", "stage", "apply", "reboot", "status", "drift"), ()),
    **dict.fromkeys(("skip", "retry", "abandon", "rollback", "remove"), ()),
}


@pytest.mark.parametrize(("verb", "before"), NODES.items(), ids=[*NODES])
def test_every_verb_takes_nodes_alike_before_and_behind_options(verb: str, before: tuple[str, ...]) -> None:
    fake = FakeVerb(0)
    for words in ([], ["n1", "gpu:!n2", "--json"], ["--json", "n1", "gpu:!n2"], ["n1", "--json", "gpu:!n2"]):
        assert main([verb, *before, *words], load=lambda _name: fake) == 0
    assert fake.limits == ["", *["n1,gpu:!n2"] * 3]


@pytest.mark.parametrize("words", [[""], ["--json", " "], ["n1", "--json", ""]], ids=["", "behind", "between"])
def test_an_empty_name_stands_for_no_node(words: list[str]) -> None:
    fake = FakeVerb(0)
    assert main(["reboot", *words], load=lambda _name: fake) == 2
    assert fake.limits == []


@pytest.mark.parametrize("end", [GrapnelError("n1 is away"), ZeroDivisionError("oops")], ids=["failure", "bug"])
def test_only_debug_shows_tracebacks(end: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    run_verb(end)
    assert "Traceback" not in capsys.readouterr().err
    run_verb(end, "--debug")
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["planz"], "did you mean `grapnel plan`?", id="a misspelt verb"),
        pytest.param(
            ["xyzzy"],
            f"one of: {', '.join(VERBS)}",
            id="no verb of ours",
        ),
        pytest.param(["--debug", "planz"], "did you mean `grapnel plan`?", id="an option before it"),
        pytest.param(["init", "--forse"], "unrecognized arguments: --forse", id="a misspelt option"),
        pytest.param(["apply", "--yes", ""], "the name of a NODE is empty", id="a node of a variable that is not set"),
        pytest.param(["check", "--inventory"], "expected one argument", id="an option without its value"),
    ],
)
def test_what_cannot_be_meant_is_a_usage_error(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def refuse(name: str) -> FakeVerb:
    raise AssertionError(name)


@pytest.mark.parametrize("arguments", [["--help"], ["-h"], ["--debug", "--help"]], ids=" ".join)
def test_help_tells_every_verb_with_its_summary_and_loads_none(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert main(arguments, load=refuse) == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert all([verb, summary] in lines for verb, summary in VERBS.items())


@pytest.mark.parametrize(
    ("arguments", "whole"), [([], ["--help"]), (["--debug"], ["--help"]), (["bundle"], ["bundle", "--help"])]
)
def test_without_a_verb_the_help_is_told(
    arguments: list[str], whole: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """It was one line of usage, which names no verb."""
    assert main(arguments) == 2
    told = capsys.readouterr()
    assert main(whole) == 0
    assert (told.out, told.err) == ("", capsys.readouterr().out)


def test_help_and_the_page_tell_the_verbs_in_the_same_groups(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    main(["--help"])
    parts = capsys.readouterr().out.split("\nverbs:\n")[1].split("\n\n")[:-1]
    lines = [re.split(r" {2,}|:\n {4}|\n {4}", part.strip()) for part in parts]
    told = [(each[0], dict(zip(each[1::2], each[2::2], strict=True))) for each in lines]
    assert told == list(GROUPS.items())

    table = (ROOT / "docs/command-line.md").read_text().split("\n## Verbs\n")[1].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    paged: dict[str, dict[str, str]] = {}
    for *group, verb, text in rows:
        paged.setdefault(group[0] if group else list(paged)[-1], {})[verb.strip("`")] = text
    assert list(paged.items()) == [(title, dict(verbs)) for title, verbs in GROUPS.items()]


def test_version_is_told_without_loading_any_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"], load=refuse) == 0
    assert capsys.readouterr().out.splitlines()[0] == f"grapnel {__version__}"


@pytest.mark.slow
def test_checking_a_file_imports_no_heavy_library() -> None:
    script = (
        "import sys; from provision.cli import main; "
        "main(['check', '-f', 'docs/contracts/gpustack/good/shortest.yaml'])\n"
        "heavy = {'ansible', 'ansible_runner', 'kubernetes', 'rich', 'tomlkit', 'jinja2'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_all_help_imports_few_modules_of_ours_and_none_of_others() -> None:
    """A verb was imported for its help, with all that it needs: 190 modules and a third of a second for plan."""
    script = (
        "import sys; from provision.cli import VERBS, main\n"
        "codes = {main([*verb, '--help']) for verb in ([], *([each] for each in VERBS))}\n"
        "assert codes == {0}, codes\n"
        "print(*(name for name in sys.modules if name.split('.')[0] not in sys.stdlib_module_names), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],  # without what site-packages import at the start of any Python
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    imported = set(done.stderr.split()) - {"__main__"}
    assert {name.partition(".")[0] for name in imported} == {"provision"}
    assert len(imported) <= 16
    assert not {f"provision.cli.{module}" for module in MODULES.values()} & imported


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_bug() -> None:
    command = [*COMMAND, "check", "--help"]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}  # as for people
    with subprocess.Popen(command, cwd=ROOT, env=buffered, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_a_verb_that_cleans_up(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    seen: list[int] = []

    class Waiting(FakeVerb):
        def run(self, _args: argparse.Namespace) -> int:
            with tempfile.TemporaryDirectory():
                seen.append(len(list(tmp_path.iterdir())))
                os.kill(os.getpid(), number)
                time.sleep(60)
            return 0

    former = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    inherited = signal.signal(number, former)  # the tests may be run by nohup
    try:
        assert main(["plan"], load=lambda _name: Waiting(0)) == 130
        assert (seen, list(tmp_path.iterdir())) == ([1], [])
        assert capsys.readouterr().err == "grapnel: interrupted\n"
        assert signal.getsignal(number) == former
    finally:
        signal.signal(number, inherited)


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup has it

    class Hung(FakeVerb):
        def run(self, _args: argparse.Namespace) -> int:
            os.kill(os.getpid(), signal.SIGHUP)
            return 0

    try:
        assert main(["plan"], load=lambda _name: Hung(0)) == 0
    finally:
        signal.signal(signal.SIGHUP, former)
