"""Plans one node: its facts and its declaration in, the node plan out.

Pure: nothing here reads a file, asks a node or knows the time. Loading and merging declarations belongs to
``provision.declaration.spec``, applying plans to the roles and ``provision.apply.runner``.
"""
