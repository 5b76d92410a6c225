"""The main job where a person can watch it: a bare systemd node becomes a GPU node, a container gets exactly its GPU.

Every line that it prints comes from a command that really ran, or is the heading above it. What is simulated (the GPU)
and what is real (everything else) is told in ``lab/README.md``.
"""
