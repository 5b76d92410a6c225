"""Makes a release: everything that people download, in one folder.

The wheel alone is the product: it has the collection and the archives for nodes inside, and names what it needs.
"""
