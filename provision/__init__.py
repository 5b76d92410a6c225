"""The controller: turns a declaration and an inventory of machines into GPU nodes.

Runs on an operator's laptop, in a CI job or in a cluster, and is never installed on a node. What runs on
nodes is `runtime_hook` and `plugin`; this package shares formats with them (`docs/contracts/`) and no code.
"""

__version__ = "0.1.0"
