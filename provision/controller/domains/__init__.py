"""ComputeDomains of a cluster: which of them has which NVLink clique, and what pods ask for its channel by."""
