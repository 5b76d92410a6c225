"""Runs sites of systemd nodes on this machine: overlay clones of a base tree, booted by systemd-nspawn, reached by ssh.

    site = Site("test")
    node = site.up(NodeSpec("n1", suite="trixie", gpus=4, driver_module="550.163.01"))
    node.run(["uname", "-r"])
    site.destroy()

Nodes reach nothing outside their site; their only packages are those of ``lab.bundle``. ``lab.kmod`` and
``lab.nvml`` do the simulation. Standard library only: this starts before anything is installed.
"""

from lab.nodes.node import Node
from lab.nodes.site import NodeStatus, Site, known_sites, lost_sites
from lab.nodes.spec import NodeSpec

__all__ = ["Node", "NodeSpec", "NodeStatus", "Site", "known_sites", "lost_sites"]
