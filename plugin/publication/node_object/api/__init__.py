"""Access to the Kubernetes API: kubeconfig or service account, proxy, HTTPS, and a budget of calls."""
