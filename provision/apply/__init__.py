"""Brings nodes to their declaration: gather facts, plan, apply, and again until the plan is empty.

Orchestration only. What a node needs is the planner's decision, how a task is carried out the roles', what
a person sees ``provision.report``'s. No state is kept outside the nodes: whatever is killed half-way is
simply run again.
"""
