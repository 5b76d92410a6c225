"""The samples of docs/contracts/gpustack are what the loader accepts and refuses, word for word."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.load import load_alone
from provision.declaration.spec.schema import render_schema
from provision.declaration.spec.template import render_template
from provision.declaration.spec.text.excerpt import render_findings
from tests.schema import require_schema

CONTRACT = Path(__file__).parents[3] / "docs/contracts/gpustack"
GOOD = sorted((CONTRACT / "good").glob("*.yaml"))
BAD = sorted((CONTRACT / "bad").glob("*.yaml"))
SCHEMA = json.loads((CONTRACT / "schema.json").read_text())
# The schema wants {} where the loader takes nothing for a section.
STRICTER_SCHEMA = {"sections-that-say-nothing"}
# What a schema cannot see: text that is no plain YAML, and rules across keys.
BEYOND_SCHEMA = {
    "named-configs-that-contradict",
    "alias-bomb",
    "anchors-and-merge-keys",
    "bundle-with-url",
    "bundle-without-repository",
    "control-character",
    "empty",
    "evict-without-the-api",
    "folder-without-bundle",
    "foreign-tags",
    "gates-that-contradict",
    "indentation",
    "key-twice",
    "not-utf-8",
    "mig-file-is-missing",
    "mig-file-that-asks-too-much",
    "mig-file-with-errors",
    "mig-layouts-are-missing",
    "memory-units-that-do-not-fit",
    "mig-for-claims-by-the-device-plugin",
    "mig-for-claims-that-is-shared",
    "mig-that-contradicts",
    "notify-in-two-places",
    "nvidia-without-key",
    "nvidia-without-repository",
    "only-comments",
    "open-bracket",
    "order-without-zones",
    "open-quote",
    "repository-with-two-places",
    "repository-without-place",
    "source-none-with-a-flavour",
    "runfile-is-missing",
    "runfile-with-two-places",
    "runfile-without-place",
    "tab",
    "too-deep",
    "two-documents",
    "engine-from-crio-of-no-version",
    "engine-from-docker-without-key",
    "engine-that-docker-has-not",
    "handler-twice",
    "values-that-contradict",
    "gpu-settings-that-contradict",
    "node-settings-that-contradict",
    "node-settings-without-what-they-need",
    "scheduler-that-contradicts",
    "commands-are-missing",
    "daemon-in-a-pod",
    "device-classes",
    "device-classes-of-one-resource",
    "both-interfaces-and-no-division",
    "mig-for-claims-in-a-pod",
    "dra-without-what-it-needs",
    "domains-of-nothing",
    "domains-that-contradict",
    "version-and-branch",
    "version-is-missing",
    "parts-that-contradict",
    "tenancy-that-contradicts",
    "waves-that-contradict",
    "when-that-contradicts",
    "window-too-short",
    "zones-that-say-nothing",
}


def name_of(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", GOOD, ids=name_of)
def test_good_samples_are_accepted_with_the_expected_warnings(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    expected = path.with_suffix(".expected")
    _, warnings = load_alone(Path(path.name))
    assert render_findings(warnings) == (expected.read_text().removesuffix("\n") if expected.exists() else "")


@pytest.mark.slow
@pytest.mark.parametrize("path", BAD, ids=name_of)
def test_bad_samples_are_refused_in_the_expected_words(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pytest.raises(DeclarationError) as caught:
        load_alone(Path(path.name))
    assert render_findings(caught.value.findings) == path.with_suffix(".expected").read_text().removesuffix("\n")


def test_there_are_samples_of_both_kinds_and_no_orphans() -> None:
    assert len(GOOD) > 4
    assert len(BAD) > 20
    texts = {path.stem for path in CONTRACT.rglob("*.expected")}
    assert texts <= {path.stem for path in [*GOOD, *BAD]}


def test_the_committed_schema_is_the_models() -> None:
    """When this fails: python -m provision.declaration.spec.schema > docs/contracts/gpustack/schema.json."""
    assert (CONTRACT / "schema.json").read_text() == render_schema()


def test_the_sample_with_every_key_is_what_init_writes() -> None:
    expected = render_template().replace("version: null", 'version: "550.163.01"', 1)
    assert (CONTRACT / "good/every-key.yaml").read_text() == expected


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in GOOD if path.stem not in STRICTER_SCHEMA], ids=name_of)
def test_the_schema_accepts_good_samples(path: Path) -> None:
    require_schema(yaml.safe_load(path.read_text()), SCHEMA)


@pytest.mark.slow
@pytest.mark.parametrize("path", [path for path in BAD if path.stem not in BEYOND_SCHEMA], ids=name_of)
def test_the_schema_refuses_bad_samples_too(path: Path) -> None:
    with pytest.raises(jsonschema.ValidationError):
        require_schema(yaml.safe_load(path.read_text()), SCHEMA)


def test_every_key_of_the_schema_is_described() -> None:
    definitions = json.loads(render_schema())["$defs"]
    sections = {"GpuStack", "StackSpec"}  # their keys are sections, described by themselves
    silent = [
        f"{name}.{key}"
        for name, definition in definitions.items()
        for key, value in definition.get("properties", {}).items()
        if "description" not in value and not (name in sections and "$ref" in value)
    ]
    assert silent == []
