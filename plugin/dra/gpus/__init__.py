"""GPUs and MIG devices for claims: what is published of them, whom they are given, and MIG devices made for claims."""
