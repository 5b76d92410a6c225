"""The declaration as an object of a cluster: which Nodes it owns, and what `kubectl get gpustacks` tells."""
