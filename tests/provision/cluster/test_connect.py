"""Which cluster is meant, and what that costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from provision.cluster import LocalCluster, PodRules, connect
from provision.cluster.errors import KubeconfigError
from provision.rollout.errors import UnreachableError

ROOT = Path(__file__).parents[3]

RULES = PodRules(resources=frozenset())


def test_without_any_kubeconfig_there_is_a_state_file(tmp_path: Path) -> None:
    found = connect(None, None, {"HOME": str(tmp_path)}, state_file=tmp_path / "j", rules=RULES, machines={})

    assert isinstance(found, LocalCluster)
    assert found.name == f"state file {tmp_path / 'j'}"


def test_a_context_without_a_kubeconfig_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigError, match="there is no kubeconfig with a context prod"):
        connect(None, "prod", {"HOME": str(tmp_path)}, state_file=tmp_path / "j", rules=RULES, machines={})


def test_a_cluster_that_does_not_answer_is_told_at_once_and_never_replaced_by_the_state_file(tmp_path: Path) -> None:
    config = {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "current-context": "x",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))

    with pytest.raises(UnreachableError, match="connection refused"):
        connect(None, None, {"KUBECONFIG": str(path)}, state_file=tmp_path / "j", rules=RULES, machines={})


def test_why_there_is_no_answer_is_not_what_the_caller_was_at_before(tmp_path: Path) -> None:
    path = tmp_path / "config"
    config = {
        "clusters": [{"name": "x", "cluster": {"server": "https://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x"}}],
        "current-context": "x",
    }
    path.write_text(json.dumps(config))

    try:
        (tmp_path / "none").read_text()
    except FileNotFoundError:
        with pytest.raises(UnreachableError, match="does not answer: connection refused"):
            connect(None, None, {"KUBECONFIG": str(path)}, state_file=tmp_path / "j", rules=RULES, machines={})


@pytest.mark.slow
def test_the_client_is_not_imported_before_it_is_needed() -> None:
    code = "import sys, provision.cluster; print([name for name in ('kubernetes', 'urllib3') if name in sys.modules])"

    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "[]\n"
