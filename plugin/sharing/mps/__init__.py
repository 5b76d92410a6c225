"""GPUs that containers share through NVIDIA's MPS: each has a control daemon, started, watched and ended from here."""
