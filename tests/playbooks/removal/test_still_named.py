"""A removal finds what would still name a handler that goes before anything is touched, and says file and line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ansible_collections.grapnel.node.plugins.module_utils.files.file_set import FileText, find_changes
from ansible_collections.grapnel.node.plugins.module_utils.removal.originals import (
    Packages,
    remember_changes,
    remember_packages,
)
from ansible_collections.grapnel.node.plugins.module_utils.removal.parts import Reader
from ansible_collections.grapnel.node.plugins.module_utils.removal.plan import find_removal

from provision.planning.engines import crio, docker
from provision.planning.engines.containerd import imports as containerd
from provision.planning.engines.containerd.base_spec import render_base_spec
from provision.planning.engines.containerd.configuration import render_containerd
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.kubernetes.handler import Written, render_kubernetes_drop_in
from provision.planning.engines.kubernetes.template import BASE_TEMPLATE, render_template
from tests.playbooks.fakes import Systemd
from tests.playbooks.removal.node import ALL, set_up, teach_packages

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.playbooks.fakes import Machine

pytestmark = pytest.mark.usefixtures("engine")

DOCKER = Reader("docker.service", "docker", reloads=True)
CONTAINERD, CRIO = Reader("containerd.service", "containerd"), Reader("crio.service", "crio")
K3S = Reader("k3s.service", "k3s")
FOLDER = "/var/lib/rancher/k3s/agent/etc/containerd"
HANDLERS = ("nvidia", "nvidia-legacy")
V2 = "io.containerd.grpc.v1.cri"
MAIN_2 = f'version = 2\n[plugins."{V2}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
CRUN = '[crio.runtime.runtimes.crun]\nruntime_path = "/usr/bin/crun"\n'
V3 = "io.containerd.cri.v1.runtime"
TABLE = '[plugins."{plugin}".containerd]\n  default_runtime_name = "nvidia"\n'
IMPORTS = f'version = 3\nimports = ["{FOLDER}/config-v3.toml.d/*.toml"]\n'


def give(machine: Machine, reader: Reader, files: Mapping[str, str]) -> None:
    """Write what an apply writes, and remember what was there."""
    Systemd(machine, reader.unit, active="active", enabled="enabled")
    changes = find_changes(machine.host, [FileText(path, text, 0o644) for path, text in files.items()])
    remember_changes(machine.host, changes, reader)
    for path, text in files.items():
        machine.write(path, text)


def give_docker(machine: Machine, before: str | None = None, *, adopt: bool = False) -> None:
    if before is not None:
        machine.write(docker.MAIN_PATH, before)
    text = docker.render_docker(main=before, handlers=HANDLERS, engine_version="29.1.0", adopt=adopt)
    give(machine, DOCKER, {docker.MAIN_PATH: text})


def give_containerd(machine: Machine, main: str, version: str, drop_ins: Mapping[str, str] | None = None) -> None:
    for path, text in {containerd.MAIN_PATH: main, **(drop_ins or {})}.items():
        machine.write(path, text)
    made = render_containerd(main=main, drop_ins=drop_ins or {}, handlers=HANDLERS, engine_version=version, adopt=True)
    spec = render_base_spec(hook_timeout_s=60)
    files = {BASE_SPEC_PATH: spec, containerd.MAIN_PATH: made.main, containerd.DROP_IN_PATH: made.drop_in}
    give(machine, CONTAINERD, files)


def give_crio(machine: Machine, before: str = CRUN) -> None:
    machine.write("/etc/crio/crio.conf.d/10-crun.conf", before)
    text = crio.render_crio(
        main=None,
        drop_ins={"/etc/crio/crio.conf.d/10-crun.conf": before},
        handlers=HANDLERS,
        engine_version="1.36.0",
        adopt=True,
    )
    give(machine, CRIO, {crio.DROP_IN_PATH: text})


def give_k3s(machine: Machine, rendered: str, path: str, text: str) -> None:
    machine.write("/usr/local/bin/k3s", "", mode=0o755)
    machine.write(f"{FOLDER}/config.toml", rendered)
    files = {BASE_SPEC_PATH: render_base_spec(hook_timeout_s=60), path: text}
    give(machine, K3S, files)


def problems(machine: Machine) -> tuple[str, ...]:
    return find_removal(machine.host, ALL).problems


@pytest.mark.parametrize("name", HANDLERS)
def test_dockers_default_runtime_that_goes_is_told_with_its_line(machine: Machine, name: str) -> None:
    """Docker failed at its next start: the name stayed, and its handler was gone."""
    give_docker(machine, '{\n  "bridge": "none"\n}\n')
    text = machine.read(docker.MAIN_PATH)
    machine.write(
        docker.MAIN_PATH, text.replace('"bridge": "none",', f'"bridge": "none",\n  "default-runtime": "{name}",')
    )

    (problem,) = problems(machine)

    assert problem == (
        f"/etc/docker/daemon.json:3 has {name!r} as default runtime, which goes with grapnel, and docker fails then: "
        "name another one there, or take the line out, then remove again"
    )


def test_a_default_runtime_in_one_line_of_json_is_found(machine: Machine) -> None:
    give_docker(machine)
    path = docker.WRAPPER_PATH
    text = f'{{"labels":["a#b"],"default-runtime":"nvidia","runtimes":{{"nvidia":{{"path":"{path}"}}}}}}'
    machine.write(docker.MAIN_PATH, text)

    assert problems(machine)[0].startswith("/etc/docker/daemon.json:1 has 'nvidia' as default runtime")


@pytest.mark.parametrize(
    "before",
    [
        pytest.param('{"default-runtime": "runc"}\n', id="another default"),
        pytest.param(
            '{"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}\n',
            id="a default whose handler is given back",
        ),
    ],
)
def test_a_default_runtime_that_has_its_handler_afterwards_is_in_nobodys_way(machine: Machine, before: str) -> None:
    give_docker(machine, before, adopt=True)

    assert problems(machine) == ()


def test_a_default_runtime_on_dockers_command_line_is_found(machine: Machine) -> None:
    give_docker(machine)
    place = "/etc/systemd/system/docker.service.d/gpu.conf"
    machine.write(place, "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --default-runtime=nvidia\n")

    assert problems(machine)[0].startswith(f"{place}:3 has 'nvidia' as default runtime")


def test_settings_that_are_left_of_our_runtime_in_docker_are_told(machine: Machine) -> None:
    """What stayed was a runtime without a program, which Docker refuses."""
    give_docker(machine)
    path = docker.WRAPPER_PATH
    text = machine.read(docker.MAIN_PATH).replace(
        f'"path": "{path}"', f'"path": "{path}", "runtimeArgs": ["--debug"]', 1
    )
    machine.write(docker.MAIN_PATH, text)

    assert problems(machine)[0].startswith("/etc/docker/daemon.json:3 configures the handler 'nvidia'")


def test_a_runtime_of_somebody_else_with_our_program_is_told(machine: Machine) -> None:
    give_docker(machine)
    path = docker.WRAPPER_PATH
    text = machine.read(docker.MAIN_PATH).replace('"nvidia": {', f'"debug": {{"path": "{path}"}},\n    "nvidia": {{', 1)
    machine.write(docker.MAIN_PATH, text)

    assert problems(machine)[0].startswith("/etc/docker/daemon.json:3 names /usr/lib/grapnel/hook/")


def test_an_engine_that_goes_with_its_packages_fails_for_nothing(machine: Machine) -> None:
    teach_packages(machine)
    remember_packages(machine.host, "docker", Packages(("docker.io", "runc")))
    give_docker(machine)
    machine.write(docker.MAIN_PATH, machine.read(docker.MAIN_PATH).replace("{", '{"default-runtime": "nvidia",', 1))

    assert problems(machine) == ()


@pytest.mark.parametrize(
    ("version", "main", "plugin"),
    [
        pytest.param("1.7.24", MAIN_2, V2, id="containerd 1.7"),
        pytest.param("2.1.0", "version = 3\n", V3, id="containerd 2"),
    ],
)
def test_containerds_default_runtime_that_goes_is_told_with_its_line(
    machine: Machine, version: str, main: str, plugin: str
) -> None:
    """The engine came up without its CRI plugin after the node was drained."""
    give_containerd(machine, main, version)
    text = machine.read(containerd.MAIN_PATH)
    machine.write(containerd.MAIN_PATH, text + TABLE.format(plugin=plugin))

    (problem,) = problems(machine)

    line = text.count("\n") + 2
    assert problem.startswith(
        f"/etc/containerd/config.toml:{line} has 'nvidia' as default runtime, which goes with grapnel"
    )


def test_the_last_default_of_containerds_files_counts(machine: Machine) -> None:
    site = "/etc/containerd/conf.d/10-site.toml"
    said = f'version = 3\n[plugins."{V3}".containerd]\ndefault_runtime_name = "{{}}"\n'
    main = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    give_containerd(machine, main, "2.1.0", {site: "version = 3\n"})
    machine.write(containerd.MAIN_PATH, main + said.removeprefix("version = 3\n").format("nvidia"))
    machine.write(site, said.format("runc"))
    assert problems(machine) == ()

    machine.write(site, said.format("nvidia-legacy"))
    assert problems(machine)[0].startswith(f"{site}:3 has 'nvidia-legacy' as default runtime")


def test_a_file_that_only_grapnels_import_reads_names_nothing_afterwards(machine: Machine) -> None:
    give_containerd(machine, "version = 3\n", "2.1.0")
    table = f'version = 3\n[plugins."{V3}".containerd]\ndefault_runtime_name = "nvidia"\n'
    machine.write("/etc/containerd/conf.d/10-site.toml", table)

    assert problems(machine) == ()


def test_settings_of_our_handler_in_anothers_drop_in_are_told(machine: Machine) -> None:
    main = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    give_containerd(machine, main, "2.1.0")
    site = "/etc/containerd/conf.d/20-site.toml"
    machine.write(site, f"version = 3\n\n[plugins.'{V3}'.containerd.runtimes.nvidia]\nsnapshotter = 'native'\n")

    assert problems(machine)[0].startswith(f"{site}:3 configures the handler 'nvidia'")


def test_a_handler_of_somebody_else_with_our_base_specification_is_told(machine: Machine) -> None:
    main = 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    give_containerd(machine, main, "2.1.0")
    site = "/etc/containerd/conf.d/20-site.toml"
    handler = f"runtime_type = 'io.containerd.runc.v2'\nbase_runtime_spec = '{BASE_SPEC_PATH}'\n"
    machine.write(site, f"version = 3\n[plugins.'{V3}'.containerd.runtimes.debug]\n{handler}")

    assert problems(machine)[0].startswith(f"{site}:4 names {BASE_SPEC_PATH}, which goes with grapnel")


def test_crios_default_runtime_that_goes_is_told_with_its_line(machine: Machine) -> None:
    give_crio(machine)
    site = "/etc/crio/crio.conf.d/50-site.conf"
    machine.write(site, '[crio.runtime]\ndefault_runtime = "nvidia"\n')

    assert problems(machine)[0].startswith(f"{site}:2 has 'nvidia' as default runtime, which goes with grapnel")


def test_crios_default_runtime_is_nobodys_problem_when_its_handler_was_there_before(machine: Machine) -> None:
    theirs = '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/bin/x"\n'
    give_crio(machine, f'[crio.runtime]\ndefault_runtime = "nvidia"\n{CRUN}{theirs}')

    assert problems(machine) == ()


def test_allowed_annotations_of_our_handler_in_anothers_file_of_crio_are_told(machine: Machine) -> None:
    give_crio(machine)
    site = "/etc/crio/crio.conf.d/zz.conf"
    machine.write(
        site, '# theirs\n[crio.runtime.runtimes.nvidia]\nallowed_annotations = ["io.kubernetes.cri-o.Devices"]\n'
    )

    assert problems(machine)[0].startswith(f"{site}:2 configures the handler 'nvidia'")


def test_a_default_in_k3ss_settings_is_told_where_it_is_made(machine: Machine) -> None:
    path = f"{FOLDER}/config-v3.toml.d/99-nvidia.toml"
    give_k3s(machine, IMPORTS, path, render_kubernetes_drop_in(Written("config.toml", IMPORTS), HANDLERS))
    machine.write("/etc/rancher/k3s/config.yaml", "token: x\ndefault-runtime: nvidia\n")
    said = f'{IMPORTS}[plugins."{V3}".containerd]\ndefault_runtime_name = "nvidia"\n'
    machine.write(f"{FOLDER}/config.toml", said)
    assert problems(machine)[0].startswith("/etc/rancher/k3s/config.yaml:2 has 'nvidia' as default runtime")

    machine.write("/etc/rancher/k3s/config.yaml", "token: x\n")
    (problem,) = problems(machine)
    assert problem.startswith(f"{FOLDER}/config.toml:4 has 'nvidia' as default runtime")
    assert problem.endswith(
        "change default-runtime in the settings of k3s, which writes this file, and restart it first"
    )


def test_a_default_in_a_template_is_told_although_what_was_rendered_has_our_handler(machine: Machine) -> None:
    path, base = f"{FOLDER}/config-v3.toml.tmpl", "version = 3\n"
    above = f'{BASE_TEMPLATE}[plugins."{V3}".containerd]\ndefault_runtime_name = "nvidia"\n'
    machine.write(path, above)
    text = render_template(above, Written("config.toml", base), HANDLERS)
    give_k3s(machine, base + text.removeprefix(BASE_TEMPLATE), path, text)

    assert problems(machine)[0].startswith(f"{path}:3 has 'nvidia' as default runtime")


def test_a_default_that_a_later_apply_took_over_is_found(machine: Machine) -> None:
    """Such an edit is part of what is given back from then on."""
    give_docker(machine, '{\n  "bridge": "none"\n}\n')
    edited = machine.read(docker.MAIN_PATH).replace("{", '{\n  "default-runtime": "nvidia",', 1)
    machine.write(docker.MAIN_PATH, edited)
    give(machine, DOCKER, {docker.MAIN_PATH: edited.replace('"bridge": "none"', '"bridge": "none",\n  "features": {}')})

    assert problems(machine)[0].startswith("/etc/docker/daemon.json:2 has 'nvidia' as default runtime")


def test_a_template_that_stays_with_our_handler_in_it_is_told(machine: Machine) -> None:
    """The handler stayed, its base specification went, and containerd's CRI plugin did not load any more."""
    path = f"{FOLDER}/config-v3.toml.tmpl"
    machine.write(path, BASE_TEMPLATE)
    text = render_template(BASE_TEMPLATE, Written("config.toml", "version = 3\n"), HANDLERS)
    give_k3s(machine, "version = 3\n", path, text)
    machine.write(path, text.replace("# managed by grapnel", "# managed by us"))

    removal = find_removal(machine.host, ALL)

    assert any(note.startswith(f"{path} stays as it is") for note in removal.notes)
    assert removal.problems[0].startswith(f"{path}:")
    assert f" names {BASE_SPEC_PATH}, which goes with grapnel" in removal.problems[0]


def test_nothing_names_a_handler_of_a_node_as_apply_leaves_it(machine: Machine) -> None:
    set_up(machine)
    give_docker(machine)
    give_containerd(machine, MAIN_2, "1.7.24")
    give_crio(machine)
    path = f"{FOLDER}/config-v3.toml.tmpl"
    text = render_template(None, Written("config.toml", "version = 3\n"), HANDLERS)
    give_k3s(machine, "version = 3\n" + text.removeprefix(BASE_TEMPLATE), path, text)

    assert problems(machine) == ()
