"""Provides images by name: built once from the bundle's packages, then from the cache."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lab import bundle
from lab.images import content
from lab.images.errors import ImageError
from lab.images.layout import image_archive
from lab.images.recipes import RECIPES, Recipe
from lab.machine.folders import cache_dir, content_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.images.content import Entry

SUITE = "trixie"


def reference(name: str) -> str:
    """Return the full name of an image, as pods use it. Raises ImageError."""
    _recipe(name)
    return f"docker.io/local/{name}:1"


def archive(name: str) -> Path:
    """Return the tar of an image for `ctr images import`, building it if not in the cache. Raises ImageError."""
    recipe = _recipe(name)
    packages = _packages(recipe)
    target = cache_dir() / "images" / f"{name}-{_key(packages)}.tar"
    if not target.exists():
        packed = image_archive(reference(name), content.pack(recipe.files(packages)), _config(recipe))
        target.parent.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(f".{os.getpid()}")
        partial.write_bytes(packed)
        partial.replace(target)
    return target


def rootfs(name: str, folder: Path) -> None:
    """Unpack an image's files into a folder that is empty or missing. Raises ImageError."""
    content.unpack(_files(name), folder)


def _files(name: str) -> Mapping[str, Entry]:
    recipe = _recipe(name)
    return recipe.files(_packages(recipe))


def _recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise ImageError(f"no image {name}", hint=f"images: {', '.join(RECIPES)}")
    return RECIPES[name]


def _packages(recipe: Recipe) -> dict[str, Path]:
    if not recipe.packages:
        return {}
    return dict(zip(recipe.packages, bundle.deb_paths(SUITE, recipe.packages), strict=True))


def _key(packages: Mapping[str, Path]) -> str:
    """Digest of the image's inputs: package file names, and this folder's sources."""
    own = sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in {".py", ".c"})
    return content_key(*(path.name for path in packages.values()), *(path.read_bytes() for path in own))


def _config(recipe: Recipe) -> dict[str, Any]:
    return {"Env": list(recipe.env), "Entrypoint": list(recipe.entrypoint), "Cmd": list(recipe.command)}
