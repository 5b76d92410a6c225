"""Packs the chart as `helm package` does, with the licence: the same bytes from the same files."""

from __future__ import annotations

import gzip
import io
import tarfile
from typing import TYPE_CHECKING, Final

import yaml

from tasks.release.notes import standing_alone

if TYPE_CHECKING:
    from pathlib import Path

_HIDDEN: Final = "."


def pack_chart(chart: Path, licence: Path, output: Path) -> Path:
    """Write the chart and its licence into the folder ``output``, as NAME-VERSION.tgz; return its path."""
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    target = output / f"{about['name']}-{about['version']}.tgz"
    paths = sorted(path for path in chart.rglob("*") if path.is_file() and not path.name.startswith(_HIDDEN))
    files = {path.relative_to(chart).as_posix(): path for path in paths} | {licence.name: licence}
    with (
        target.open("xb") as file,
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, path in files.items():
            content = path.read_bytes()
            if path.suffix == ".md":
                content = standing_alone(content.decode(), f"deploy/chart/{about['name']}").encode()
            member = tarfile.TarInfo(f"{about['name']}/{name}")
            member.size, member.mode = len(content), 0o644
            archive.addfile(member, io.BytesIO(content))
    return target
