"""Shows the main journey: a bare systemd node becomes a GPU node, a container gets exactly its GPU.

Every line that it prints comes from a command that really ran, or is the heading above it. ``lab/README.md`` says what
is simulated (the GPU) and what is real (everything else).
"""
