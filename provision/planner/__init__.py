"""Facts of a node and the declaration in, the node's plan out.

Pure: nothing here reads a file, asks a node or knows the time. Loading and merging declarations belongs to
``provision.spec``, carrying plans out to the roles and ``provision.runner``.
"""
