"""Brings the Nodes of a cluster to its GpuStacks, round by round, with the engine that `grapnel apply` has.

A round is an apply of the nodes of one stack that are not as declared: facts, plans, and the rollout where one is
needed. Which nodes those are is told from what the API server pushes, so that nothing is asked of a node, and nothing
runs on it, while it and its stack stay the same.
"""
