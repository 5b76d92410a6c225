"""What ``bench/cluster.py`` measures on a real Kubernetes, a module for each table."""
