"""The Container Runtime Interface of Kubernetes 1.34: k8s.io/cri-api v0.34.4, pkg/apis/runtime/v1/api.proto, unchanged.

`api_pb2*` are generated from it by `python3 -m lab.cri.generate`; nothing here is written by hand.
"""
