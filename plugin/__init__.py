"""The node daemon: offers this node's GPUs to the kubelet and answers what a container gets.

Belongs here: everything that runs for as long as the node does. What runs once per container start is
`runtime_hook`, what runs on the operator's side is `provision`; none of the three imports another.
"""

__version__ = "0.1.0"
