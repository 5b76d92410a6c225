"""The objects of Kubernetes that are read, as values."""
