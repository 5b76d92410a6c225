"""containerd's files: what comes in, what goes out, and what is left alone.

That the result means to containerd 1.6.20 and 1.7.24 what it should was seen with `containerd config dump`: next to the
configuration without our files only the handler is new. `test_containerd_itself.py` repeats that where there is one.
That version 3 needs no more than the handler was seen with the loader of containerd 2.1.4 (`LoadConfig`, `Decode`).
"""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from provision.planning.engines.containerd.configuration import ContainerdFiles, render_containerd
from provision.planning.engines.containerd.handler import BASE_SPEC_PATH
from provision.planning.engines.containerd.imports import DROP_IN_PATH
from provision.planning.engines.files.engine_file import is_same
from provision.planning.engines.files.mark import marked
from provision.planning.render.errors import EngineConfigError
from tests.provision.samples import DEBIAN_CONFIG

CRI = "io.containerd.grpc.v1.cri"
CRI_3 = "io.containerd.cri.v1.runtime"
IMPORTING = f'imports = ["/etc/containerd/conf.d/*.toml"]\n{DEBIAN_CONFIG}'
HANDLER = {
    "runtime_type": "io.containerd.runc.v2",
    "base_runtime_spec": BASE_SPEC_PATH,
    "container_annotations": ["grapnel.dev/*"],
}


def render(
    main: str | None, drop_ins: dict[str, str] | None = None, *, handler: str = "nvidia", engine: str = "1.7.24"
) -> ContainerdFiles:
    return render_containerd(main=main, drop_ins=drop_ins or {}, handlers=(handler,), engine_version=engine)


def cri_of(text: str) -> dict[str, Any]:
    plugins: dict[str, Any] = tomllib.loads(text)["plugins"]
    (table,) = plugins.values()
    return dict(table)


def test_debian_s_own_file_gets_one_line() -> None:
    files = render(DEBIAN_CONFIG)

    before, after = DEBIAN_CONFIG.splitlines(), files.main.splitlines()
    assert [line for line in after if line not in before] == ['imports = ["/etc/containerd/conf.d/*.toml"]']
    assert [line for line in after if line in before] == before
    assert files.drop_in == marked(
        "version = 2\n"
        "\n"
        f'[plugins."{CRI}".cni]\n'
        'bin_dir = "/usr/lib/cni"\n'
        'conf_dir = "/etc/cni/net.d"\n'
        "\n"
        f'[plugins."{CRI}".containerd.runtimes.runc]\n'
        'runtime_type = "io.containerd.runc.v2"\n'
        "\n"
        f'[plugins."{CRI}".containerd.runtimes.nvidia]\n'
        'runtime_type = "io.containerd.runc.v2"\n'
        'base_runtime_spec = "/etc/grapnel/containerd/base-spec.json"\n'
        'container_annotations = [\n    "grapnel.dev/*",\n]\n'
    )


MAIN_FILES: dict[str, tuple[str, str]] = {
    "comments and layout stay": (
        "# mine\nversion = 2   # why not\n\n[debug]\n  level='warn'\n",
        "# mine\nversion = 2   # why not\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n\n[debug]\n  level='warn'\n",
    ),
    "other imports stay": (
        'version = 2\nimports = ["/etc/containerd/conf.d/site.toml"] # ours\n',
        'version = 2\nimports = ["/etc/containerd/conf.d/site.toml", "/etc/containerd/conf.d/*.toml"] # ours\n',
    ),
    "imports on several lines stay on several lines": (
        'version = 2\nimports = [\n  "/etc/containerd/conf.d/a.toml",\n]\n',
        'version = 2\nimports = [\n  "/etc/containerd/conf.d/a.toml",\n  "/etc/containerd/conf.d/*.toml",\n]\n',
    ),
    "an empty list is filled": (
        "version = 2\nimports = []\n",
        'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
    ),
    "a file with nothing but comments gets a version": (
        "# see containerd-config.toml(5)\n",
        '# see containerd-config.toml(5)\nversion = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
    ),
    "a folder that is imported already is enough": (
        'imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 2\n',
        'imports = ["/etc/containerd/conf.d/*.toml"]\nversion = 2\n',
    ),
    "our file imported by name is enough": (
        f'version = 2\nimports = ["{DROP_IN_PATH}"]\n',
        f'version = 2\nimports = ["{DROP_IN_PATH}"]\n',
    ),
}


@pytest.mark.parametrize(("before", "after"), MAIN_FILES.values(), ids=MAIN_FILES.keys())
def test_the_main_file_imports_our_folder(before: str, after: str) -> None:
    assert render(before).main == after


@pytest.mark.parametrize(("engine", "version"), [("1.6.20", 2), ("1.7.24", 2), ("2.1.4", 3)])
def test_a_main_file_that_is_absent_has_the_engine_s_version(engine: str, version: int) -> None:
    assert render(None, engine=engine).main == f'version = {version}\nimports = ["/etc/containerd/conf.d/*.toml"]\n'


@pytest.mark.parametrize("main", [None, DEBIAN_CONFIG, "version = 3\n", *(before for before, _ in MAIN_FILES.values())])
def test_a_second_time_changes_no_byte(main: str | None) -> None:
    first = render(main)

    assert render(first.main, {DROP_IN_PATH: first.drop_in}) == first


SYSTEMD_RUNC = f"""\
version = 2
[plugins."{CRI}"]
sandbox_image = "registry.example/pause:3.9"
[plugins."{CRI}".containerd]
default_runtime_name = "runc"
snapshotter = "zfs"
[plugins."{CRI}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
privileged_without_host_devices = true
pod_annotations = ["*"]
container_annotations = ["example.com/*"]
[plugins."{CRI}".containerd.runtimes.runc.options]
SystemdCgroup = true
BinaryName = "/opt/runc"
[plugins."{CRI}".containerd.runtimes.gvisor]
runtime_type = "io.containerd.runsc.v1"
[plugins."{CRI}".registry.mirrors."docker.example"]
endpoint = ["https://mirror.example"]
"""


def test_the_whole_cri_table_is_carried_and_only_the_handler_is_new() -> None:
    carried = cri_of(render(SYSTEMD_RUNC).drop_in)
    main = cri_of(SYSTEMD_RUNC)

    handler = carried["containerd"]["runtimes"].pop("nvidia")

    assert carried == main
    assert handler == {
        **HANDLER,
        "privileged_without_host_devices": True,
        "container_annotations": ["example.com/*", "grapnel.dev/*"],
        "options": {"SystemdCgroup": True, "BinaryName": "/opt/runc"},
    }


def test_annotations_of_pods_are_never_let_through() -> None:
    assert "pod_annotations" not in cri_of(render(SYSTEMD_RUNC).drop_in)["containerd"]["runtimes"]["nvidia"]


def runtimes(default: str, **binaries: str) -> str:
    lines = ["version = 2", f'[plugins."{CRI}".containerd]', f'default_runtime_name = "{default}"']
    for name, binary in binaries.items():
        shim = "io.containerd.runc.v2" if "kata" not in binary else "io.containerd.kata.v2"
        lines += [f'[plugins."{CRI}".containerd.runtimes.{name}]', f'runtime_type = "{shim}"']
        lines += [f'options = {{BinaryName = "{binary}"}}']
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("default", "binaries", "inherited"),
    [
        ("fast", {"runc": "runc", "fast": "crun"}, "crun"),
        ("kata", {"kata": "kata", "runc": "/usr/sbin/runc"}, "/usr/sbin/runc"),
        ("crun", {"crun": "crun"}, "crun"),
        ("nv", {"nv": "/usr/bin/nvidia-container-runtime", "runc": "runc"}, "runc"),
    ],
    ids=["the default runtime", "runc where the default is something else", "crun", "never another injector"],
)
def test_options_come_from_the_ordinary_runtime(default: str, binaries: dict[str, str], inherited: str) -> None:
    table = cri_of(render(runtimes(default, **binaries)).drop_in)["containerd"]

    assert table["runtimes"]["nvidia"]["options"] == {"BinaryName": inherited}
    assert table["default_runtime_name"] == default


def test_version_3_needs_only_the_handler() -> None:
    main = f'version = 3\n[plugins."{CRI_3}".cni]\nbin_dirs = ["/opt/cni/bin"]\n'

    files = render(main, engine="2.1.4")

    assert tomllib.loads(files.drop_in)["version"] == 3
    assert cri_of(files.drop_in) == {"containerd": {"runtimes": {"nvidia": HANDLER}}}


def test_version_3_leaves_runtimes_that_exist_to_their_own_file() -> None:
    main = (
        f'version = 3\n[plugins."{CRI_3}".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
        "options = {SystemdCgroup = true}\n"
    )

    table = cri_of(render(main, engine="2.1.4").drop_in)

    assert table == {"containerd": {"runtimes": {"nvidia": HANDLER | {"options": {"SystemdCgroup": True}}}}}


V3 = f'version = 3\n[plugins."{CRI_3}"]\nenable_cdi = false\n'
IMPORTING_V3 = V3.replace("\n", '\nimports = ["/etc/containerd/conf.d/*.toml"]\n', 1)


@pytest.mark.parametrize(
    ("main", "drop_ins", "engine", "said"),
    [
        pytest.param(IMPORTING, {}, "1.7.24", True, id="off by default"),
        pytest.param(None, {}, "1.7.24", True, id="no file at all"),
        pytest.param(IMPORTING, {}, "2.2.1", None, id="on by default"),
        pytest.param(V3, {}, "2.1.4", True, id="switched off by the site"),
        pytest.param(
            IMPORTING_V3, {"/etc/containerd/conf.d/10-a.toml": V3.replace("false", "true")}, "2.1.4", None, id="on"
        ),
        pytest.param(V3, {}, "2.4.2", None, id="an engine that has no such key, and takes them"),
        pytest.param(None, {}, "", None, id="a version that is not known"),
    ],
)
def test_devices_of_claims_are_taken_where_they_would_not_be(
    main: str | None, drop_ins: dict[str, str], engine: str, *, said: bool | None
) -> None:
    files = [
        render_containerd(main=main, drop_ins=drop_ins, handlers=("nvidia",), engine_version=engine, cdi=cdi)
        for cdi in (False, True)
    ]
    without, by_claims = (cri_of(each.drop_in) for each in files)

    assert by_claims.pop("enable_cdi", None) is said
    assert without == by_claims, "and nothing else differs"
    assert "enable_cdi" not in without


def test_who_takes_no_devices_after_all_is_named() -> None:
    last = {"/etc/containerd/conf.d/zz-site.toml": V3}

    with pytest.raises(EngineConfigError, match=r"zz-site\.toml is read after .* and has enable_cdi = false"):
        render_containerd(main=IMPORTING_V3, drop_ins=last, handlers=("nvidia",), engine_version="2.1.4", cdi=True)
    assert render_containerd(main=IMPORTING_V3, drop_ins=last, handlers=("nvidia",), engine_version="2.1.4")


def test_another_handler_s_name_can_be_declared() -> None:
    assert "gpu" in cri_of(render(DEBIAN_CONFIG, handler="gpu").drop_in)["containerd"]["runtimes"]


def test_the_last_of_other_drop_ins_before_ours_is_what_is_carried() -> None:
    first = f'version = 2\n[plugins."{CRI}".cni]\nbin_dir = "/first"\n'
    second = f'version = 2\n[plugins."{CRI}".cni]\nbin_dir = "/second"\n'
    unused = f'version = 2\n[plugins."{CRI}".cni]\nbin_dir = "/unused"\n'

    files = render(
        IMPORTING,
        {
            "/etc/containerd/conf.d/10-a.toml": first,
            "/etc/containerd/conf.d/20-b.toml": second,
            "/etc/containerd/attic/z.toml": unused,
        },
    )

    assert cri_of(files.drop_in)["cni"] == {"bin_dir": "/second"}


def test_an_import_from_elsewhere_counts_once_it_was_read() -> None:
    main = 'version = 2\nimports = ["/opt/site.toml"]\n'
    site = f'version = 2\n[plugins."{CRI}".cni]\nbin_dir = "/site"\n'

    files = render(main, {"/opt/site.toml": site})

    assert cri_of(files.drop_in)["cni"] == {"bin_dir": "/site"}


def test_an_old_drop_in_at_our_place_is_replaced() -> None:
    toolkit = f'version = 2\n[plugins."{CRI}".containerd.runtimes.nvidia]\nruntime_type = "x"\n'

    assert render(DEBIAN_CONFIG, {DROP_IN_PATH: toolkit}) == render(DEBIAN_CONFIG)


REFUSED: dict[str, tuple[str, dict[str, str], str]] = {
    "text that is not TOML": (
        "version = 2\n\n[plugins\n",
        {},
        "/etc/containerd/config.toml: expected ']' at the end of a table declaration (at line 3, column 9)",
    ),
    "a template": (
        '{{ template "base" . }}\nversion = 2\n',
        {},
        "/etc/containerd/config.toml: invalid statement (at line 1, column 1) (it looks like a template)",
    ),
    "a generated file": (
        "# File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.\nversion = 2\n",
        {},
        (
            "/etc/containerd/config.toml is managed by another program: "
            "'File generated by k3s. DO NOT EDIT. Use config.toml.tmpl instead.'"
        ),
    ),
    "version 1 by default": (
        'disabled_plugins = ["restart"]\n',
        {},
        "/etc/containerd/config.toml has version 1, which has no drop-ins that can be added to",
    ),
    "a version of the future": (
        "version = 9\n",
        {},
        "/etc/containerd/config.toml has version 9, which has no drop-ins that can be added to",
    ),
    "the CRI plugin switched off": (
        'version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n',
        {},
        "/etc/containerd/config.toml disables the CRI plugin, so no runtime handler of it can be used",
    ),
    "the handler defined by somebody else": (
        runtimes("runc", runc="runc", nvidia="nvidia-container-runtime"),
        {},
        "the runtime handler 'nvidia' already exists, and grapnel did not create it",
    ),
    "a default runtime with our base specification": (
        f'version = 2\n[plugins."{CRI}".containerd.runtimes.runc]\nbase_runtime_spec = "{BASE_SPEC_PATH}"\n',
        {},
        (
            f"the default runtime has grapnel's base specification, {BASE_SPEC_PATH}: "
            "its hook would start for every container"
        ),
    ),
    "an import from elsewhere": (
        'version = 2\nimports = ["/opt/site/*.toml"]\n',
        {},
        (
            "/etc/containerd/config.toml imports /opt/site/*.toml, "
            "which grapnel does not read and which may hold CRI settings"
        ),
    ),
    "an import that nobody has read": (
        'version = 2\nimports = ["site.toml"]\n',
        {},
        ("/etc/containerd/config.toml imports site.toml, which grapnel does not read and which may hold CRI settings"),
    ),
    "a drop-in that would replace ours": (
        IMPORTING,
        {"/etc/containerd/conf.d/zz.toml": f'version = 2\n[plugins."{CRI}"]\n'},
        (
            "/etc/containerd/conf.d/zz.toml is read after /etc/containerd/conf.d/99-nvidia.toml "
            "and replaces its CRI settings as a whole"
        ),
    ),
    "a drop-in that is not TOML": (
        IMPORTING,
        {"/etc/containerd/conf.d/10-a.toml": "=\n"},
        "/etc/containerd/conf.d/10-a.toml: invalid statement (at line 1, column 1)",
    ),
}


@pytest.mark.parametrize(("main", "drop_ins", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_added_to_is_refused(main: str, drop_ins: dict[str, str], message: str) -> None:
    with pytest.raises(EngineConfigError) as raised:
        render(main, drop_ins)

    assert raised.value.message == message
    assert raised.value.hint


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("a = 1 # one\n\nb = 2\n", "b = 2\na = 1\n", True),
        ("a = 1\n", "a = 2\n", False),
        (None, "a = 1\n", False),
        ("a = \n", "a = 1\n", False),
    ],
    ids=["comments and order do not count", "values do", "an absent file", "a broken file"],
)
def test_only_effective_changes_count(before: str | None, after: str, *, same: bool) -> None:
    assert is_same("a.toml", before, after) is same
