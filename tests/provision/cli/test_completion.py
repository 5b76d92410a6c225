"""Shell completion: the printed scripts, in the real shells."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from provision.cli import VERBS, main
from provision.cli.parsers.further_arguments import SHELLS
from tests.provision.cli.shells import candidates

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        pytest.param("grapnel ", set(VERBS), id="all verbs"),
        pytest.param("grapnel pl", {"plan"}, id="the rest of a verb"),
        pytest.param("grapnel apply --pa", {"--parallel", "--payload"}, id="options of a verb"),
        pytest.param("grapnel apply --parallel 3 --pay", {"--payload"}, id="an option after one with a value"),
        pytest.param("grapnel reboot n1 --js", {"--json"}, id="an option after a node"),
        pytest.param("grapnel --debug apply --yes --no-w", {"--no-wait"}, id="an option before the verb"),
        pytest.param("grapnel bundle ", {"create", "verify"}, id="verbs below a verb"),
        pytest.param("grapnel bundle create --no-b", {"--no-build"}, id="their options"),
        pytest.param("grapnel completion ", set(SHELLS), id="words to choose from"),
        pytest.param("grapnel check --file fleet", {"fleet.yaml", "fleets"}, id="files"),
        pytest.param("grapnel plan --inventory fleet", {"fleet.yaml", "fleets"}, id="files of an option"),
        pytest.param("grapnel plan --payload fleet", {"fleets"}, id="folders of an option"),
    ],
)
def test_a_shell_offers_what_fits(shell: str, script: str, line: str, offered: set[str], tmp_path: Path) -> None:
    (tmp_path / "fleet.yaml").touch()
    (tmp_path / "fleets").mkdir()

    found = candidates(shell, script, line, tmp_path)

    assert {each.rstrip("/") for each in found} == offered


def test_a_script_is_the_same_each_time(shell: str, script: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", shell])

    assert capsys.readouterr().out == script


def test_another_shell_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 2
    assert "bash" in capsys.readouterr().err
