"""The kubelet's published interfaces and what protoc makes of them. Nothing here is written by hand.

Regenerate from the repository's root with:
python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. \
    lab/kubelet/proto/deviceplugin/v1beta1/api.proto lab/kubelet/proto/pluginregistration/v1/api.proto \
    lab/kubelet/proto/dra/v1/api.proto lab/kubelet/proto/dra/v1beta1/api.proto \
    lab/kubelet/proto/dra_health/v1alpha1/api.proto

The path from the root is part of the generated file's identity: other interfaces of the kubelet are
called `api.proto` too, and one process may load each name only once.
"""
