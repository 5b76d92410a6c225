"""The kubelet's pod resources interface of Kubernetes 1.36: k8s.io/kubelet v0.36.3, pkg/apis/podresources/v1/api.proto.

Unchanged; `api_pb2*` are generated from it by `python3 -m lab.podresources.generate`. Nothing here is written by hand.
"""
