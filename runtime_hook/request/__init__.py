"""Decides who may have GPUs, what is requested, and what is granted. Pure: text and values in, values out."""
