"""Provides the nodes' packages: real Debian packages, downloaded once, in a signed flat apt repository per suite.

Nodes have no route to the outside: this folder, bound read-only at ``/srv/bundle``, is their only apt source.
``lab.bundle.contents`` is the only list of what it contains.
"""

from lab.bundle.contents import BUILDER_PACKAGES, CONTENTS
from lab.bundle.folder import FOR_DEMO, Bundle, Package, deb_paths, ensure
from lab.bundle.layer import ensure_layer

__all__ = ["BUILDER_PACKAGES", "CONTENTS", "FOR_DEMO", "Bundle", "Package", "deb_paths", "ensure", "ensure_layer"]
