"""The device plugin interface, `v1beta1`: its messages, the service, and the device list that kubelets watch."""
