"""Base trees: one Debian system per suite, the shared lowest layer of every node; made once, kept in the cache.

A tree is bare: no container engine, no driver, no apt source. What makes it a node of a site (name, address, keys,
package folder) belongs to ``lab.nodes``.
"""

from lab.trees.build import PACKAGES, ensure
from lab.trees.suites import SUITES, Suite, find_suite

__all__ = ["PACKAGES", "SUITES", "Suite", "ensure", "find_suite"]
