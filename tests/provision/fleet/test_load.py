"""The fleet of a declaration and an inventory, with the real ansible-inventory where its answer matters."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from provision.declaration.fleet.ansible import condense, export_inventory
from provision.declaration.fleet.errors import InventoryError
from provision.declaration.fleet.inventory import parse_inventory
from provision.declaration.fleet.load import assemble, load
from provision.declaration.spec.errors import DeclarationError
from provision.declaration.spec.load import load_declaration
from provision.declaration.spec.text.excerpt import render_findings
from provision.declaration.spec.text.findings import Severity

if TYPE_CHECKING:
    from pathlib import Path

    from provision.base.errors import GrapnelError
    from provision.declaration.fleet.model import Fleet

HEAD = "apiVersion: grapnel.dev/v1alpha1\nkind: GpuStack\n"
HOSTS = """\
all:
  children:
    gpu_nodes:
      vars: {grapnel_stack: {driver: {version: "550.163.01"}}}
      hosts:
        n[1:3]:
        n10:
    canary:
      vars: {ansible_group_priority: 10}
      hosts: {n2: }
  hosts: {}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "grapnel.yaml").write_text(HEAD + "spec: {}\n")
    (tmp_path / "hosts.yml").write_text(HOSTS)
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/canary.yml").write_text("grapnel_stack: {driver: {version: '550.135', hold: no}}\n")
    return tmp_path


def load_folder(folder: Path, *, inventory: str = "hosts.yml", limit: str = "") -> Fleet:
    sources = [str(folder / inventory)]
    return load(folder / "grapnel.yaml", sources, limit=limit, directory=folder, environ=os.environ)


@pytest.mark.slow
def test_an_ordinary_inventory_gives_each_node_its_declaration(folder: Path) -> None:
    fleet = load_folder(folder)
    versions = {node.name: node.stack.driver.version for node in fleet.nodes}
    assert versions == {"n1": "550.163.01", "n2": "550.135", "n3": "550.163.01", "n10": "550.163.01"}
    canary = fleet.nodes[1]
    assert canary.groups == ("all", "gpu_nodes", "canary")
    assert canary.stack.driver.hold is False
    assert str(canary.origins["driver.hold"].where) == "group canary"
    assert fleet.inventories == (str(folder / "hosts.yml"),)


@pytest.mark.slow
def test_limit_selects_hosts_and_a_wrong_part_of_it_is_told(folder: Path) -> None:
    assert [node.name for node in load_folder(folder, limit="canary").nodes] == ["n2"]
    with pytest.raises(InventoryError) as caught:
        load_folder(folder, limit="n1,canry")
    assert (caught.value.message, caught.value.hint) == (
        "no host or group of the inventory matches 'canry'",
        "did you mean canary?",
    )


@pytest.mark.slow
def test_a_broken_variable_file_is_named_with_its_line(folder: Path) -> None:
    """Ansible's own message names neither the file nor the line."""
    (folder / "group_vars/canary.yml").write_text("grapnel_stack:\n  driver: [\n")
    with pytest.raises(InventoryError, match=r"group_vars/canary\.yml:2:11: these brackets are not closed"):
        load_folder(folder)


@pytest.mark.slow
def test_an_inventory_without_hosts_and_a_broken_one_are_told(folder: Path) -> None:
    (folder / "empty.yml").touch()
    with pytest.raises(InventoryError, match=r"empty\.yml names no host"):
        load_folder(folder, inventory="empty.yml")
    (folder / "broken.yml").write_text("all:\n  hosts:\n    n1:\n   n2:\n")
    with pytest.raises(InventoryError, match=r"broken\.yml:4:6: colons in unquoted values") as caught:
        load_folder(folder, inventory="broken.yml")
    assert "ansible-inventory --list --export" in caught.value.hint


def test_ansible_that_hangs_is_given_up(tmp_path: Path) -> None:
    script = tmp_path / "slow.sh"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    with pytest.raises(InventoryError, match="did not answer within 0 s"):
        export_inventory([str(script)], limit="", directory=tmp_path, environ=os.environ, timeout_s=0.1)


def test_no_inventory_at_all_is_told(folder: Path) -> None:
    with pytest.raises(InventoryError, match="there is no inventory"):
        load(folder / "grapnel.yaml", [], limit="", directory=folder, environ={})


def assembled(tmp_path: Path, text: str, groups: dict[str, Any], **hosts: Any) -> Fleet:
    """Put a fleet together from an inventory as Ansible prints it, without Ansible."""
    path = tmp_path / "grapnel.yaml"
    path.write_text(HEAD + text)
    printed = {
        "_meta": {"hostvars": {name: {"grapnel_stack": stack} for name, stack in hosts.items()}},
        "all": {"children": list(groups)},
        **groups,
    }
    return assemble(load_declaration(path), parse_inventory(json.dumps(printed)), ["x"])


def words(caught: pytest.ExceptionInfo[GrapnelError], tmp_path: Path) -> str:
    assert isinstance(caught.value, DeclarationError)
    return render_findings(caught.value.findings).replace(f"{tmp_path}/", "")


def found(caught: pytest.ExceptionInfo[DeclarationError]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return what is wrong: the level of the inventory, the key, and the nodes that are concerned."""
    return [(str(each.place), each.key, each.nodes) for each in caught.value.findings]


def test_every_level_that_is_wrong_is_told_at_once_with_its_nodes(tmp_path: Path) -> None:
    groups = {
        "gpu": {"hosts": ["n1", "n2"], "vars": {"grapnel_stack": {"driver": {"verzion": "550.163.01"}}}},
        "old": {"hosts": ["n3"], "vars": {"grapnel_stack": "none"}},
    }
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, "spec: {}\n", groups, n3={"driver": {"version": "{{ version }}", "hold": 550.1}})
    assert (
        words(caught, tmp_path)
        == """\
group gpu: error: grapnel_stack.driver.verzion: unknown key
      = nodes: n1, n2
      = hint: did you mean version?

group old: error: grapnel_stack: should be a mapping, not text
      = nodes: n3

host n3: error: grapnel_stack.driver.hold: should be true or false, not a number

host n3: error: grapnel_stack.driver.version: '{{ version }}' is a template
      = hint: write the value out: it is read before Ansible renders anything"""
    )


def test_rules_are_judged_on_what_the_levels_add_up_to(tmp_path: Path) -> None:
    groups = {
        "gpu": {"hosts": ["n1"], "vars": {"grapnel_stack": {"driver": {"version": "550.163.01"}}}},
        "new": {"hosts": ["n2", "n3"]},
    }
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, "spec:\n  driver:\n    hold: true\n", groups, n1={"runtime": {"engine": "podman"}})
    assert (
        words(caught, tmp_path)
        == """\
grapnel.yaml:3:1: error: spec.runtime.entitlement: podman does not work with a kubelet
    3 | spec:
      | ^^^^
      = nodes: n1
      = hint: write entitlement: env

grapnel.yaml:4:3: error: spec.driver.version: is required while the driver is enabled, unless a branch is declared
    4 |   driver:
      |   ^^^^^^
      = nodes: n2, n3
      = hint: write one, for example version: "550.163.01"; or branch: "550"; or driver.enabled: false"""
    )


def test_rules_that_have_nothing_to_do_with_an_error_are_judged_beside_it(tmp_path: Path) -> None:
    """They were told once the error was mended: everything that was wrong took two rounds."""
    groups = {
        "gpu": {"hosts": ["n1", "n2"], "vars": {"grapnel_stack": {"driver": {"version": "550.163.01"}}}},
        "new": {"hosts": ["n3"], "vars": {"grapnel_stack": {"driver": {"verzion": "550.163.01"}}}},
    }
    wrong = {"runtime": {"engine": "podman"}, "plugin": {"labels": 5}}
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, "spec: {}\n", groups, n2=wrong)
    assert [(each.key, each.nodes) for each in caught.value.findings if each.severity is Severity.ERROR] == [
        ("spec.runtime.entitlement", ("n2",)),
        ("grapnel_stack.driver.verzion", ("n3",)),
        ("grapnel_stack.plugin.labels", ()),
    ]


@pytest.mark.slow
def test_rules_are_judged_beside_an_error_in_the_file(folder: Path) -> None:
    text = "spec:\n  driver: {version: '550.135'}\n  runtime: {engine: podman, hold: 1}\n"
    (folder / "grapnel.yaml").write_text(HEAD + text)
    (folder / "group_vars/canary.yml").write_text("grapnel_stack: {runtime: {entitlement: env}}\n")
    with pytest.raises(DeclarationError) as caught:
        load_folder(folder)
    told = {each.key: each.nodes for each in caught.value.findings if each.severity is Severity.ERROR}
    assert told == {"spec.runtime.hold": (), "spec.runtime.entitlement": ("n1", "n3", "n10")}


def test_a_builder_must_be_a_host_of_the_inventory(tmp_path: Path) -> None:
    declared = {"driver": {"version": "550.163.01", "builder": "n2"}}
    groups = {"gpu": {"hosts": ["n1", "n2"], "vars": {"grapnel_stack": declared}}}
    other = {"driver": {"builder": "build-n2"}}
    assert assembled(tmp_path, "spec: {}\n", groups).warnings == ()
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, "spec: {}\n", groups, n1=other)
    assert found(caught) == [("host n1", "grapnel_stack.driver.builder", ("n1",))]
    assert "'build-n2'" in caught.value.findings[0].message


def test_a_builder_that_a_limit_leaves_out_is_not_missed(tmp_path: Path) -> None:
    path = tmp_path / "grapnel.yaml"
    path.write_text(f'{HEAD}spec: {{driver: {{version: "550.163.01", builder: n9}}}}\n')
    inventory = parse_inventory(json.dumps({"all": {"hosts": ["n1"]}}))
    fleet = assemble(load_declaration(path), inventory, ["x"], is_whole=False)
    assert fleet.nodes[0].stack.driver.builder == "n9"


def test_waves_select_hosts_and_groups_of_the_inventory(tmp_path: Path) -> None:
    waves = [{"hosts": ["n1"]}, {"groups": ["gpu"], "size": 1}, {}]
    groups = {"gpu": {"hosts": ["n1", "n2"], "vars": {"grapnel_stack": {"rollout": {"waves": waves}}}}}
    assert assembled(tmp_path, "spec: {driver: {enabled: false}}\n", groups).warnings == ()
    groups["gpu"]["vars"] = {"grapnel_stack": {"rollout": {"waves": [{"hosts": ["n9"]}, {"groups": ["gpus"]}, {}]}}}
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, "spec: {driver: {enabled: false}}\n", groups)
    assert found(caught) == [
        ("group gpu", "grapnel_stack.rollout.waves[0].hosts[0]", ()),
        ("group gpu", "grapnel_stack.rollout.waves[1].groups[0]", ()),
    ]
    host, group = caught.value.findings
    assert "'n9'" in host.message
    assert "'gpus'" in group.message
    assert group.hint == "did you mean gpu?"


def test_all_nodes_have_the_same_waves(tmp_path: Path) -> None:
    groups = {"gpu": {"hosts": ["n1", "n2"]}}
    own = {"rollout": {"waves": [{"size": 1}, {}]}}
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, "spec: {driver: {enabled: false}}\n", groups, n2=own)
    assert found(caught) == [("host n2", "grapnel_stack.rollout.waves", ("n2",))]
    assert "n1" in caught.value.findings[0].message


def test_zones_are_groups_of_the_inventory_and_the_same_for_all_nodes(tmp_path: Path) -> None:
    zones = {"rollout": {"zones": {"groups": ["gpu", "east"]}}}
    groups = {"gpu": {"hosts": ["n1", "n2"]}}
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, "spec: {driver: {enabled: false}}\n", groups, n2=zones)
    assert found(caught) == [
        ("host n2", "grapnel_stack.rollout.zones", ("n2",)),
        ("host n2", "grapnel_stack.rollout.zones.groups[1]", ("n2",)),
    ]
    other, group = caught.value.findings
    assert "'east'" in group.message
    assert "n1" in other.message


def test_warnings_stay_with_the_fleet(tmp_path: Path) -> None:
    kubelet = {"cpuManagerPolicy": "static"}  # without reserved CPUs
    groups = {"gpu": {"hosts": ["n1", "n2"], "vars": {"grapnel_stack": {"node": {"kubelet": kubelet}}}}}
    fleet = assembled(tmp_path, "spec: {driver: {enabled: false}}\n", groups)
    (warning,) = fleet.warnings
    key = "grapnel_stack.node.kubelet.cpuManagerPolicy"
    assert (warning.place.source, warning.key, warning.nodes) == ("group gpu", key, ())


@pytest.mark.parametrize(
    ("stderr", "source", "message"),
    [
        pytest.param(
            "[WARNING]: Failed to parse inventory with 'auto' plugin: no root 'plugin' key found.\n"
            "Origin: <inventory plugin 'auto' with source 'x.yml'>\n"
            "[WARNING]: Failed to parse inventory with 'yaml' plugin: Invalid \"hosts\" entry.\n"
            "[WARNING]: Failed to parse inventory with 'ini' plugin: Failed to parse inventory: Invalid host.\n"
            "[ERROR]: Completely failed to parse inventory source x.yml\n",
            "x.yml",
            'inventory x.yml: invalid "hosts" entry',
            id="the plugin that fits the name is believed",
        ),
        pytest.param(
            "[WARNING]: Failed to parse inventory with 'yaml' plugin: invalid structure\n"
            "[WARNING]: Failed to parse inventory with 'ini' plugin: Failed to parse inventory: Expected a value.\n"
            "[ERROR]: Completely failed\n",
            "hosts",
            "inventory hosts: expected a value",
            id="a name without suffix is an ini file",
        ),
        pytest.param(
            "[ERROR]: Attempting to decrypt but no vault secrets found\n",
            "x.yml",
            "inventory x.yml: attempting to decrypt but no vault secrets found",
            id="an error that is no parse failure is told as it is",
        ),
        pytest.param("", "x", "inventory x: it gave no reason", id="silence"),
    ],
)
def test_ansibles_words_are_condensed_to_the_useful_line(stderr: str, source: str, message: str) -> None:
    assert condense(stderr, [source]) == message


def test_each_group_chooses_its_mig_layout_from_the_files_beside_the_declaration(tmp_path: Path) -> None:
    disabled = [{"devices": "all", "mig-enabled": False}]
    layouts = dict.fromkeys(("training", "inference"), disabled)
    (tmp_path / "mig.yaml").write_text(json.dumps({"version": "v1", "mig-configs": layouts}))
    groups = {
        "a": {"hosts": ["n1"], "vars": {"grapnel_stack": {"mig": {"layout": "training"}}}},
        "b": {"hosts": ["n2", "n3"], "vars": {"grapnel_stack": {"mig": {"layout": "inference"}}}},
        "c": {"hosts": ["n4"]},
    }
    text = 'spec:\n  driver: {version: "550.163.01"}\n  mig: {configFile: mig.yaml}\n'
    fleet = assembled(tmp_path, text, groups, n1={}, n2={}, n3={"mig": {"layout": None}}, n4={})

    chosen = {node.name: node.stack.mig for node in fleet.nodes}
    assert {name: mig.layout for name, mig in chosen.items()} == {
        "n1": "training",
        "n2": "inference",
        "n3": "inference",
        "n4": None,
    }
    assert [list(mig.config.mig_configs) for mig in chosen.values() if mig.config] == [
        ["training"],
        ["inference"],
        ["inference"],
    ]


def test_a_layout_that_no_file_has_is_told_where_the_group_chooses_it(tmp_path: Path) -> None:
    layouts = {"inference": [{"devices": "all", "mig-enabled": False}]}
    (tmp_path / "mig.yaml").write_text(json.dumps({"version": "v1", "mig-configs": layouts}))
    wrong = {"grapnel_stack": {"mig": {"layout": "inferense"}}}
    groups = {"a": {"hosts": ["n1"], "vars": wrong}, "b": {"hosts": ["n2"]}}
    text = 'spec:\n  driver: {version: "550.163.01"}\n  mig: {configFile: mig.yaml}\n'
    with pytest.raises(DeclarationError) as caught:
        assembled(tmp_path, text, groups, n1={}, n2={})

    assert found(caught) == [("group a", "grapnel_stack.mig.layout", ("n1",))]
    assert "'inferense'" in caught.value.findings[0].message
    assert caught.value.findings[0].hint == "did you mean inference?"


TENANTS = "tenancy: {tenants: [{namespace: a, quota: {nvidia.com/mig-1g.10gb: 7}}]}"


@pytest.mark.slow
def test_a_quota_is_judged_by_what_all_nodes_offer_together(folder: Path) -> None:
    (folder / "grapnel.yaml").write_text(HEAD + f"spec: {{{TENANTS}}}\n")
    with pytest.raises(DeclarationError) as caught:
        load_folder(folder)
    assert "no node offers nvidia.com/mig-1g.10gb" in render_findings(caught.value.findings)
    assert load_folder(folder, limit="n1").nodes[0].name == "n1"  # the others may
    (folder / "group_vars/canary.yml").write_text("grapnel_stack: {plugin: {migStrategy: mixed}}\n")
    assert len(load_folder(folder).nodes) == 4


@pytest.mark.slow
def test_tenants_are_the_same_for_all_nodes(folder: Path) -> None:
    (folder / "group_vars/canary.yml").write_text("grapnel_stack: {tenancy: {tenants: [{namespace: a}]}}\n")
    with pytest.raises(DeclarationError) as caught:
        load_folder(folder)
    assert "other tenants are declared for n1" in render_findings(caught.value.findings)
    (folder / "group_vars/canary.yml").write_text("grapnel_stack: {tenancy: {namespaces: [a]}}\n")
    assert len(load_folder(folder).nodes) == 4  # that is a rule of each node's own
