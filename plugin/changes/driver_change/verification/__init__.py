"""Whether a node is after a driver swap what was declared and what it was before: looks, then a table of checks."""
