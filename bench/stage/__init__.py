"""Takes the measurements of ``bench/cluster.py`` on a real Kubernetes, one module per table."""
