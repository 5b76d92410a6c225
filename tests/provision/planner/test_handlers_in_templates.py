"""A handler that is in a template already, of somebody's or of ours, is found, taken over, or told."""

from __future__ import annotations

import pytest

from provision.planning.engines.files.mark import without_block
from provision.planning.engines.kubernetes.template import BASE_TEMPLATE
from tests.provision.planner.test_kubernetes_engines import (
    K3S,
    NODES,
    RKE2,
    SITE_TEMPLATE,
    V2,
    V3,
    handler_in,
    k3s,
    node,
    of_engine,
    recorded,
    stack_of,
    written,
)
from tests.provision.samples import (
    edit_file,
    plan,
    replace,
    simulate_apply,
    text_of,
)

TABLE = '[plugins."{plugin}".containerd.runtimes.{name}]\n  runtime_type = "io.containerd.runc.v2"\n'
IN_TEMPLATES: dict[str, str] = {
    "a bare key": TABLE.format(plugin=V3, name="nvidia"),
    "a quoted key": TABLE.format(plugin=V2, name='"nvidia"'),
    "single quotes and blanks": f"  [ plugins . '{V3}' . containerd . runtimes . 'nvidia' ]  # ours\n",
    "version 1": "[plugins.cri.containerd.runtimes.nvidia]\n",
    "a table below it": TABLE.format(plugin=V2, name="nvidia.options"),
    "a condition of the template": (
        "{{- if .NodeConfig.SELinux }}\n" + TABLE.format(plugin=V2, name="nvidia") + "{{- end }}\n"
    ),
    "a condition on its line": "{{ if .X }}" + f'[plugins."{V2}".containerd.runtimes.nvidia]' + "{{ end }}\n",
    "dotted keys": f'[plugins."{V3}".containerd]\nruntimes.nvidia.runtime_type = "io.containerd.runc.v2"\n',
    "an inline table of its own": f'[plugins."{V3}".containerd.runtimes]\nnvidia = {{ runtime_type = "x" }}\n',
}


@pytest.mark.parametrize("lines", IN_TEMPLATES.values(), ids=IN_TEMPLATES)
@pytest.mark.parametrize(
    ("engine", "recorded_as", "name"),
    [
        pytest.param("k3s", "k3s-1.28.toml", "config.toml.tmpl", id="k3s with containerd 1.7"),
        pytest.param("k3s", "k3s-1.32.toml", "config-v3.toml.tmpl", id="k3s with containerd 2"),
        pytest.param("rke2", "k3s-1.32.toml", "config-v3.toml.tmpl", id="RKE2"),
        pytest.param("k3s", "k3s-1.35-imports.toml", "config-v3.toml.tmpl", id="k3s that imports drop-ins"),
    ],
)
def test_a_handler_in_a_template_that_was_not_rendered_since_is_found_and_nothing_is_written(
    engine: str, recorded_as: str, name: str, lines: str
) -> None:
    """The table was written a second time, containerd did not start, and the node's control plane went with it."""
    folder, unit = (K3S, "k3s.service") if engine == "k3s" else (RKE2, "rke2-server.service")
    template = f"{folder}/{name}"
    files = {f"{folder}/config.toml": recorded(recorded_as), template: f"{BASE_TEMPLATE}\n{lines}"}

    result = plan(node(engine, f"{folder}/config.toml", unit, files), stack_of(engine))

    (problem,) = result.problems
    said, _, place = problem.message.removesuffix(", and grapnel did not write it").rpartition(":")
    line = files[template].splitlines()[int(place) - 1]
    assert said == f"{engine} has a handler 'nvidia' already, in {template}"
    assert "nvidia" in line
    assert problem.code == "engine-config"
    assert "restart the service" in problem.hint
    assert result.roles.runtime is None


def test_a_handler_in_the_template_of_microk8s_is_told_with_its_line() -> None:
    table = TABLE.format(plugin=V2, name="nvidia")
    facts, path, _, _ = NODES["microk8s"]
    text = recorded("microk8s-template.toml")

    (problem,) = plan(edit_file(facts, path, text + table), stack_of("microk8s")).problems

    assert problem.message.startswith(f"microk8s has a handler 'nvidia' already, in {path}:{text.count(chr(10)) + 1},")


# As NVIDIA's toolkit writes it.
THEIRS = """\
[plugins."{plugin}".containerd.runtimes.nvidia]
  privileged_without_host_devices = false
  runtime_type = "io.containerd.runc.v2"

  # which program
  [plugins."{plugin}".containerd.runtimes.nvidia.options]
    BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
"""
OTHERS = """
# its other handler
[plugins."{plugin}".containerd.runtimes.nvidia-cdi]
  runtime_type = "io.containerd.runc.v2"
"""


@pytest.mark.parametrize(
    ("name", "rendered"),
    [
        ("microk8s", ""),
        ("k3s with containerd 1.7", "k3s-1.28-with-toolkit.toml"),
        ("k3s with containerd 2 before it imported drop-ins", ""),
        ("RKE2 with containerd 1.7", ""),
    ],
)
def test_a_handler_in_a_template_is_taken_over_and_everything_else_stays(name: str, rendered: str) -> None:
    facts, path, _, handler = NODES[name]
    theirs, others = (text.format(plugin=handler["plugin"]) for text in (THEIRS, OTHERS))
    above = facts.content(path) or BASE_TEMPLATE
    facts = edit_file(facts, path, above + theirs + others)
    facts = edit_file(facts, f"{K3S}/config.toml", recorded(rendered)) if rendered else facts
    stack = stack_of(of_engine(facts), adopt=True)

    result = plan(facts, stack)

    text = written(result, path)
    assert without_block(text) == above + others
    assert handler_in(text.removeprefix(above + others)) == handler
    assert plan(simulate_apply(facts, result), stack).is_empty


@pytest.mark.parametrize(
    ("above", "words"),
    [
        (BASE_TEMPLATE + IN_TEMPLATES["a condition of the template"], "there is more in its tables than settings"),
        (BASE_TEMPLATE + IN_TEMPLATES["dotted keys"], "k3s has a handler 'nvidia' already"),
    ],
)
def test_a_handler_that_is_more_than_tables_is_not_taken_over(above: str, words: str) -> None:
    facts = edit_file(k3s("k3s-1.32.toml"), f"{K3S}/config-v3.toml.tmpl", above)
    (problem,) = plan(facts, stack_of("k3s", adopt=True)).problems
    assert words in problem.message


def test_the_only_handler_is_not_taken_over() -> None:
    """Ours would be without the options that the node's control groups need."""
    facts, path, _, _ = NODES["microk8s"]
    facts = edit_file(facts, path, f"version = 2\n{THEIRS.format(plugin=V2)}")
    (problem,) = plan(facts, stack_of("microk8s", adopt=True)).problems
    assert "has no handler runc beside 'nvidia'" in problem.message


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(TABLE.format(plugin=V3, name="nvidia-legacy"), id="another handler"),
        pytest.param(f"# {TABLE.format(plugin=V3, name='nvidia')}".replace("\n ", "\n# "), id="a comment"),
        pytest.param(f'[plugins."{V3}".containerd.runtimes.runc]\nnvidia = true\n', id="a setting of that name"),
        pytest.param(
            f"{{{{ range $k, $v := .ExtraRuntimes }}}}\n{TABLE.format(plugin=V3, name=chr(34) + '{{ $k }}' + chr(34))}",
            id="a name that is made when it is rendered",
        ),
        pytest.param('[proxy_plugins.nvidia]\ntype = "snapshot"\n', id="a table of something else"),
    ],
)
def test_other_lines_of_a_template_are_in_nobodys_way(lines: str) -> None:
    template = f"{BASE_TEMPLATE}\n{lines}"
    facts = k3s("k3s-1.32.toml", **{f"{K3S}/config-v3.toml.tmpl": template})

    result = plan(facts, stack_of("k3s"))

    assert result.problems == ()
    assert without_block(written(result, f"{K3S}/config-v3.toml.tmpl")) == template


def test_handlers_in_an_inline_table_cannot_be_added_to() -> None:
    lines = f'[plugins."{V3}".containerd]\nruntimes = {{ runc = {{ runtime_type = "io.containerd.runc.v2" }} }}\n'
    facts = k3s("k3s-1.32.toml", **{f"{K3S}/config-v3.toml.tmpl": f"{BASE_TEMPLATE}{lines}"})

    (problem,) = plan(facts, stack_of("k3s")).problems

    assert problem.message.startswith("k3s has its handlers in an inline table, in ")
    assert f"{K3S}/config-v3.toml.tmpl:3, " in problem.message


def test_a_block_of_ours_whose_mark_is_gone_is_not_written_a_second_time() -> None:
    facts, path, _, _ = NODES["k3s with containerd 2 before it imported drop-ins"]
    after = simulate_apply(facts, plan(facts, stack_of("k3s")))
    unmarked = "".join(line for line in text_of(after, path).splitlines(keepends=True) if not line.startswith("#"))

    (problem,) = plan(edit_file(after, path, unmarked), stack_of("k3s")).problems

    assert f"k3s has a handler 'nvidia' already, in {path}:" in problem.message


def test_a_template_without_k3ss_own_text_takes_no_drop_in_in_and_is_the_way() -> None:
    """A drop-in was written that the next start does not import."""
    template = recorded("k3s-1.32.toml")
    facts = k3s("k3s-1.35-imports.toml", **{f"{K3S}/config-v3.toml.tmpl": template})

    result = plan(facts, stack_of("k3s"))

    assert result.problems == ()
    assert without_block(written(result, f"{K3S}/config-v3.toml.tmpl")) == template


def test_a_template_of_version_2_that_k3s_has_yet_to_read_is_not_hidden_by_one_of_ours() -> None:
    facts = k3s("k3s-1.32.toml", **{f"{K3S}/config.toml.tmpl": SITE_TEMPLATE})

    (problem,) = plan(facts, stack_of("k3s")).problems

    assert problem.message.startswith(f"k3s has not started since {K3S}/config.toml.tmpl was written")


def test_a_text_of_version_3_in_a_template_of_version_2_is_added_to() -> None:
    template = recorded("k3s-1.32.toml")
    facts = k3s("k3s-1.32.toml", **{f"{K3S}/config.toml.tmpl": template})

    result = plan(facts, stack_of("k3s"))

    text = written(result, f"{K3S}/config.toml.tmpl")
    assert without_block(text) == template
    assert handler_in(text.removeprefix(template))["plugin"] == V3


def test_a_template_that_nobody_reads_any_more_is_in_nobodys_way() -> None:
    old = TABLE.format(plugin=V2, name="nvidia")
    files = {f"{K3S}/config.toml.tmpl": old, f"{K3S}/config-v3.toml.tmpl": BASE_TEMPLATE}

    assert plan(k3s("k3s-1.32.toml", **files), stack_of("k3s")).problems == ()


def test_a_drop_in_that_k0s_has_not_merged_yet_is_read() -> None:
    facts, path, _, _ = NODES["k0s that merges by itself"]
    theirs = edit_file(facts, path.replace("99-nvidia", "10-site"), TABLE.format(plugin=V2, name="nvidia"))

    (problem,) = plan(theirs, stack_of("k0s")).problems

    assert problem.message.startswith("the runtime handler 'nvidia' already exists")


@pytest.mark.parametrize("name", ["k3s that imports drop-ins", "k3s with containerd 1.7", "RKE2 with containerd 1.7"])
def test_a_handler_that_the_service_will_make_at_its_next_start_is_found(name: str) -> None:
    """The toolkit came after the last start, so nothing of it was rendered yet; the restart wrote the table twice."""
    facts, _, _, _ = NODES[name]
    with_toolkit = replace(facts, product_files=("/usr/bin/nvidia-container-runtime",))
    engine = of_engine(facts)

    (problem,) = plan(with_toolkit, stack_of(engine)).problems

    assert problem.message == (
        f"{engine} adds a handler 'nvidia' of its own when it starts next: it finds /usr/bin/nvidia-container-runtime"
    )
    assert plan(with_toolkit, stack_of(engine, handler="grapnel")).problems == ()


def test_a_template_that_names_nothing_that_k3s_finds_is_in_nobodys_way() -> None:
    facts = k3s("k3s-1.32.toml", **{f"{K3S}/config-v3.toml.tmpl": recorded("k3s-1.32.toml")})

    assert plan(replace(facts, product_files=("/usr/bin/nvidia-container-runtime",)), stack_of("k3s")).problems == ()
