"""Builds base trees: one Debian system per suite, the shared lowest layer of every node, built once and cached.

A tree is bare: no container engine, no driver, no apt source. ``lab.nodes`` adds what makes it a node of a site (name,
address, keys, package folder).
"""

from lab.trees.build import PACKAGES, ensure
from lab.trees.suites import SUITES, Suite, find_suite

__all__ = ["PACKAGES", "SUITES", "Suite", "ensure", "find_suite"]
