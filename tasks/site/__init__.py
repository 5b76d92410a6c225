"""Builds the documentation site from the Markdown files of the repository, without a network.

The files stay as a forge shows them: nothing in them is for the site alone. The navigation is what the tables of
`docs/README.md` list.
"""
