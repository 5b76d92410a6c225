"""ComputeDomains: a node's IMEX channel for claims of the domain that has its NVLink clique."""
