"""Which files containerd reads, in which order, and in which version: what stands in them counts or is left alone."""

from __future__ import annotations

import tomllib

import pytest

from provision.planning.engines.containerd.configuration import ContainerdFiles, render_containerd
from provision.planning.render.errors import EngineConfigError

CRI = '[plugins."io.containerd.grpc.v1.cri"'
RUNTIMES = f"{CRI}.containerd.runtimes"
SITE = "/etc/containerd/conf.d/10-site.toml"


def render(main: str, site: str, *, engine: str = "1.7.24") -> ContainerdFiles:
    return render_containerd(main=main, drop_ins={SITE: site}, handlers=("nvidia",), engine_version=engine)


TABLES = """\
  # what follows stays as it is, byte for byte
[debug]
level='warn'   # odd layout
[plugins]
  [plugins."x"]
    a.b.c   =  [ 1,
  2 ]
"""


@pytest.mark.parametrize(
    ("head", "edited"),
    [
        ("version = 2\n", 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n'),
        ("version = 2\n\n\n", 'version = 2\nimports = ["/etc/containerd/conf.d/*.toml"]\n\n\n'),
        (
            'version = 2\nimports = [\n  "/x.toml", # mine\n]\n',
            'version = 2\nimports = [\n  "/x.toml", # mine\n  "/etc/containerd/conf.d/*.toml",\n]\n',
        ),
    ],
)
def test_only_what_stands_before_the_first_table_is_edited(head: str, edited: str) -> None:
    files = render_containerd(
        main=head + TABLES, drop_ins={"/x.toml": ""}, handlers=("nvidia",), engine_version="1.7.24"
    )

    assert files.main == edited + TABLES


def test_a_main_file_that_cannot_be_edited_is_refused_with_what_to_add() -> None:
    for head in ("x = [\n[1],\n[2]]\n", "".join(f"key{number} = 1\n" for number in range(2000))):
        with pytest.raises(EngineConfigError, match=r"^/etc/containerd/config\.toml "):
            render(f"version = 2\n{head}", "")


@pytest.mark.parametrize(
    ("engine", "command"),
    [
        pytest.param("1.6.20", "containerd config dump", id="1.6"),
        pytest.param("1.7.24", "containerd config dump", id="1.7"),
        pytest.param("2.2.1", "containerd --config FILE config migrate", id="2.2"),
    ],
)
@pytest.mark.parametrize(
    ("main", "site"), [("", "x = 1"), ('version = 2\nimports = ["conf.d/*.toml"]\n', f"version = 3\n{CRI}]\n")]
)
def test_a_hint_names_a_command_that_this_containerd_has(engine: str, command: str, main: str, site: str) -> None:
    with pytest.raises(EngineConfigError) as raised:
        render(main or "root = '/x'\n", site, engine=engine)

    assert raised.value.hint.endswith(f": {command}")


@pytest.mark.parametrize(("main", "site"), [(2, 3), (3, 2), (4, 3)])
def test_settings_of_plugins_in_two_versions_are_refused(main: int, site: int) -> None:
    importing = f'version = {main}\nimports = ["conf.d/*.toml"]\n'
    limit = '[plugins."io.containerd.grpc.v1.cri"]\nmax_container_log_line_size = 999\n'

    with pytest.raises(EngineConfigError, match=f"has version {site} and .* has version {main}: one more file"):
        render(importing, f"version = {site}\n{limit}", engine="2.2.1")
    render(importing, f"version = {site}\n[debug]\nlevel = 'warn'\n", engine="2.2.1")
    render(importing, limit, engine="2.2.1")


def test_a_drop_in_that_the_engine_does_not_read_stays_out_of_force() -> None:
    files = render("version = 2\n", f"version = 2\n{CRI}]\nmax_container_log_line_size = 999\n")

    assert tomllib.loads(files.main)["imports"] == ["/etc/containerd/conf.d/99-nvidia*.toml"]
    assert "999" not in files.drop_in


def test_what_an_imported_file_imports_is_read_too() -> None:
    main = 'version = 2\nimports = ["conf.d/*.toml"]\n'

    with pytest.raises(
        EngineConfigError,
        match=f"{SITE} imports /opt/more.toml, which grapnel does not read and which may hold CRI settings",
    ):
        render(main, 'imports = ["/opt/more.toml"]\n')


def test_lists_of_several_files_are_joined_where_containerd_joins_them() -> None:
    main = f'version = 2\nimports = ["conf.d/*.toml"]\n{RUNTIMES}.runc]\ncontainer_annotations = ["a"]\n'
    site = f'version = 2\n{RUNTIMES}.runc]\ncontainer_annotations = ["b"]\n'

    def annotations(engine: str) -> list[str]:
        (plugin,) = tomllib.loads(render(main, site, engine=engine).drop_in)["plugins"].values()
        found: list[str] = plugin["containerd"]["runtimes"]["nvidia"]["container_annotations"]
        return found

    assert annotations("2.2.1") == ["a", "b", "grapnel.dev/*"]
    assert annotations("1.7.24") == ["b", "grapnel.dev/*"]


IMPORTING = 'version = 2\n# imports = ["/opt/old.toml"]\nimports = [\n  "/opt/site.toml",\n  "/opt/more/*.toml",\n]\n'


def test_an_import_that_leads_nowhere_is_named_with_its_line() -> None:
    with pytest.raises(EngineConfigError) as raised:
        render_containerd(
            main=IMPORTING,
            drop_ins={},
            handlers=("nvidia",),
            engine_version="2.2.1",
            looked_at={"/opt/site.toml", "/opt/more/*.toml"},
        )

    assert raised.value.message == (
        "/etc/containerd/config.toml, line 4, imports /opt/site.toml, which is not there or is no text: containerd "
        "does not start with that"
    )
    assert raised.value.hint == "write that file, or take the import out"


def test_a_pattern_that_matches_nothing_is_harmless_once_somebody_has_looked() -> None:
    files = render_containerd(
        main=IMPORTING,
        drop_ins={"/opt/site.toml": f"version = 2\n{CRI}.cni]\nbin_dir = '/site'\n"},
        handlers=("nvidia",),
        engine_version="1.7.24",
        looked_at={"/opt/site.toml", "/opt/more/*.toml"},
    )

    assert "/site" in files.drop_in


def test_a_missing_file_of_our_own_folder_is_named_as_well() -> None:
    with pytest.raises(EngineConfigError, match=r"config\.toml, line 2, imports /etc/containerd/conf\.d/a\.toml"):
        render_containerd(
            main='version = 2\nimports = ["conf.d/a.toml"]\n',
            drop_ins={},
            handlers=("nvidia",),
            engine_version="1.7.24",
            looked_at={"/etc/containerd/conf.d/a.toml"},
        )
