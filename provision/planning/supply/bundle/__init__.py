"""Writes and reads bundles: one archive with everything that driver changes need, for nodes without a network.

What is in one is said by its list (``docs/contracts/bundle``). Which change a node needs is the planner's business; how
files get to a node is that of the roles.
"""
