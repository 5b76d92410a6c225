"""Configures the containerd that a Kubernetes distribution brings: k3s, RKE2, k0s, microk8s."""
