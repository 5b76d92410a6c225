"""Which verbs have `--json`: the page says which, and a new verb has it or says why not."""

from __future__ import annotations

import re
from pathlib import Path

from provision.cli import VERBS, whole_parser
from provision.cli.around.completion import arguments_of
from provision.cli.parsers.man import below

PAGE = (Path(__file__).parents[3] / "docs/command-line.md").read_text()
IN_WORDS = {
    "agent": "prints lines for the controller alone",
    "completion": "prints a script",
    "help": "prints a page",
    "explain": "prints words; for scripts there are the schema of the declaration, and `status --json`",
    "controller": "writes a log; its state is the status of GpuStacks",
    "uninstall": "writes a log, which helm shows",
}


def verbs_with_json() -> set[str]:
    return {
        name
        for name, verb in below(whole_parser()).items()
        if any("--json" in action.option_strings for action in arguments_of(verb))
    }


def test_every_verb_has_json_or_a_reason() -> None:
    assert verbs_with_json() == set(VERBS) - set(IN_WORDS)


def test_the_page_names_the_verbs_that_have_it() -> None:
    sentence = re.search(r"`--json` prints [^.]+\. (`check`[^.]+) have it\.", PAGE)
    assert sentence
    assert {each.split()[0] for each in re.findall(r"`([^`]+)`", sentence[1])} == verbs_with_json()
