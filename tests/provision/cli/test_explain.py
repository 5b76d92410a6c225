"""`grapnel explain`: what a key of the declaration means, from the schema that it is checked by."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from provision.cli import main
from provision.cli.declare.explain import NEEDS_NAME, explain_key
from provision.declaration.spec.model import StackSpec

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def leaves(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in content.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")


@pytest.mark.slow
def test_every_key_of_the_declaration_is_explained_with_its_default() -> None:
    for key, value in leaves(msgspec.to_builtins(StackSpec())):
        head, sentence, *more = explain_key(key).splitlines()
        assert head.startswith(f"spec.{key}: ")
        assert len(sentence) > 10, key
        assert isinstance(value, dict) or any(line.startswith("  default: ") for line in more), key


def test_a_key_has_its_type_default_and_allowed_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "driver.kernelModule"]) == 0
    assert capsys.readouterr().out == (
        "spec.driver.kernelModule: one of the words below\n"
        "  Flavour of the kernel module; auto: what the node's GPUs need; none: something else provides the\n"
        "  module.\n"
        "  default: auto\n"
        "  allowed: auto, none, open, proprietary\n"
    )


@pytest.mark.parametrize(
    ("key", "told"),
    [
        pytest.param("driver.version", '  for example: "550.163.01"', id="an example"),
        pytest.param("spec.driver.VERSION", "spec.driver.version: a text or null", id="as in the file"),
        pytest.param("rollout.waves", "  soakMinutes  How long", id="keys of the entries of a list"),
        pytest.param("rollout.waves.size", "spec.rollout.waves.size: ", id="a key of an entry"),
        pytest.param("driver", "  kernelModule      Flavour of the kernel module", id="a section"),
        pytest.param("", "  driver     The NVIDIA driver", id="no key"),
        pytest.param("spec", "  rollout    How a change moves", id="all of the declaration"),
    ],
)
def test_what_is_told(key: str, told: str) -> None:
    assert told in explain_key(key)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        pytest.param("plugin.resuorce", "did you mean plugin.resource or ", id="a misspelt key"),
        pytest.param("resuorce", "did you mean plugin.resource or ", id="a misspelt word"),
        pytest.param("maxParallel", "did you mean rollout.maxParallel?", id="a key without its section"),
        pytest.param("rolout.maxUnavailable", "did you mean rollout.maxUnavailable", id="a misspelt section"),
        pytest.param("xyzzy", "`grapnel explain` lists the sections", id="no key of ours"),
        pytest.param("gpu-07", "`grapnel explain node gpu-07`", id="perhaps a node"),
        pytest.param("default/train-0", "`grapnel explain pod default/train-0`", id="perhaps a pod"),
    ],
)
def test_an_unknown_key_is_told_with_the_nearest(key: str, near: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", key]) == 1
    told = capsys.readouterr().err
    assert f"the declaration has no key '{key}'" in told
    assert near in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        pytest.param(["pod"], "which pod?", id="no pod"),
        pytest.param(["pod", "train"], "which pod?", id="no namespace"),
        pytest.param(["pod", "team/"], "which pod?", id="no name"),
        pytest.param(["Pods"], "which pod?", id="as kubectl takes it"),
        pytest.param(["driver", "n1"], "'n1' is of no use behind a key", id="a name behind a key"),
    ],
)
def test_a_thing_of_a_cluster_is_named_in_full(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", *words]) == 2
    assert told in capsys.readouterr().err


def test_no_key_is_called_as_what_takes_a_name_and_a_node_without_one_is_a_section(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert NEEDS_NAME.isdisjoint(msgspec.to_builtins(StackSpec()))
    assert main(["explain", "node"]) == 0
    assert capsys.readouterr().out.startswith("spec.node: a mapping\n")


@pytest.mark.parametrize("words", [[], ["node"], ["--help"]], ids=" ".join)
def test_whoever_looks_finds_that_nodes_of_a_cluster_are_explained(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        main(["explain", *words])
    told = " ".join(capsys.readouterr().out.split())
    assert "explain node NAME`" in told
    assert words == ["node"] or "explain pod NAMESPACE/NAME`" in told


def test_without_a_cluster_nobody_can_be_asked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["explain", "node", "n1"]) == 1
    assert "there is no cluster to ask" in capsys.readouterr().err
