"""Takes the measurements of ``bench/nodes/cluster.py`` on a real Kubernetes, one module per table."""
