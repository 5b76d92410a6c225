"""The package folder of the nodes: real Debian packages, downloaded once, in a signed flat apt repository per suite.

Nodes have no route to the outside: this folder, bound read-only at ``/srv/bundle``, is their only apt source. What
goes in is listed in ``lab.bundle.contents`` and nowhere else.
"""

from lab.bundle.contents import CONTENTS
from lab.bundle.folder import Bundle, deb_paths, ensure
from lab.bundle.layer import ensure_layer

__all__ = ["CONTENTS", "Bundle", "deb_paths", "ensure", "ensure_layer"]
