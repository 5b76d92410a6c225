"""What a container gets, in the forms of NVIDIA's plugin, and which of the free devices to prefer."""
