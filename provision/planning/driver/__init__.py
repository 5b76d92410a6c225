"""Finds the packages of a declared driver on a distribution: names, exact versions, and the pin that keeps them.

Pure: from the declaration and from what a node's package manager says it has. Installing belongs to the role
``driver``; what an installed driver means for the rest of a node to ``provision.planning.planner``.
"""
