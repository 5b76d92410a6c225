"""One allocation on each GPU through the driver's own `libcuda.so.1`, in short-lived processes.

A context of CUDA takes hundreds of megabytes and can hang for ever: neither may happen to whoever asks.
"""
