"""Makes nodes of other distributions: what they say they are, and where their packages come from.

Package managers are real; the packages are built here, from tables of published names, versions, dependencies and
module streams, with small contents. The README says what is real and what is not.
"""

from lab.sources.build import Sources, ensure
from lab.sources.systems import BASE_SUITE, SYSTEMS, System, find_system

__all__ = ["BASE_SUITE", "SYSTEMS", "Sources", "System", "ensure", "find_system"]
