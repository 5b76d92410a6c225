"""Messages without rich: quoted text is shown and has no effect."""

from __future__ import annotations

import pytest

from provision.base.errors import GrapnelError
from provision.cli import main
from provision.cli.terminal import print_error, print_findings, say
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.text.findings import Finding, Place, Severity

HOSTILE = "n1\x1b]0;title\x07\x9b2J\u202e\r\ngrapnel: n2 is as declared"


def only_visible(text: str) -> bool:
    return all(line.isprintable() for line in text.split("\n"))


def test_an_error_shows_what_it_quotes_and_begins_no_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(GrapnelError(f"node {HOSTILE}", hint=HOSTILE))

    told = capsys.readouterr().err
    assert only_visible(told)
    assert told.splitlines()[0] == r"grapnel: error: node n1\x1b]0;title\x07\x9b2J\u202e\r"
    assert [line for line in told.splitlines() if line.startswith("grapnel:")] == told.splitlines()[:1]


def test_a_hint_of_several_lines_stays_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(GrapnelError("no access", hint="add the rules:\n  - one\n  - two"))

    assert capsys.readouterr().err.splitlines()[1:] == ["  hint: add the rules:", "      - one", "      - two"]


def test_a_finding_shows_what_it_quotes(capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(f"group {HOSTILE}", 1, 1, 1, HOSTILE)
    finding = Finding(Severity.ERROR, place, HOSTILE, HOSTILE, HOSTILE, (HOSTILE,))
    print_findings([finding])
    print_error(DeclarationError("1 error", [finding]))

    told = capsys.readouterr().err
    assert only_visible(told)
    assert not [line for line in told.splitlines() if "n2 is" in line and line.startswith("grapnel")]


def test_words_on_standard_output_are_cleaned_too(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)

    assert only_visible(capsys.readouterr().out)


@pytest.mark.parametrize("options", [[], ["--debug"]], ids=["plain", "with a traceback"])
def test_a_bug_shows_what_it_quotes(capsys: pytest.CaptureFixture[str], options: list[str]) -> None:
    class Verb:
        def configure(self, parser: object) -> None:
            """Take no options."""

        def run(self, _args: object) -> int:
            raise ValueError(HOSTILE)

    assert main([*options, "plan"], load=lambda _name: Verb()) == 70

    told = capsys.readouterr().err
    assert only_visible(told)
    assert not [line for line in told.splitlines() if line.startswith("grapnel: n2")]
