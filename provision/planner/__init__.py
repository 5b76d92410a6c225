"""Plans one node: its facts and its declaration in, the node plan out.

Pure: nothing here reads a file, asks a node or knows the time. Loading and merging declarations belongs to
``provision.spec``, applying plans to the roles and ``provision.runner``.
"""
