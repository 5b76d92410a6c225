"""What a container asks for, and what it is given of it. Pure: text and values in, values out."""
