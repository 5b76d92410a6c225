"""The planner in a process of its own, with limits: what one node's files say can cost no more than that node.

The decisions are `provision.planner`'s. Here is what stands around them: a worker process that plans one node after the
other, the frames that go to it and come back, and how much time and memory one plan may take.
"""
