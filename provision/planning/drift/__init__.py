"""Compares nodes with their declaration after the fact: what differs, on which nodes, and who changed it. Pure.

The planner decides what differs, as for `grapnel apply`; here its items become differences in the words of somebody who
wants to know what happened. How they are shown belongs to ``provision.report``.
"""

from provision.planning.drift.compare import differences_of
from provision.planning.drift.group import Case, Comparison, group
from provision.planning.drift.model import Difference, DriftKind, Subject
from provision.planning.drift.origin import Origin, origins

__all__ = ["Case", "Comparison", "Difference", "DriftKind", "Origin", "Subject", "differences_of", "group", "origins"]
