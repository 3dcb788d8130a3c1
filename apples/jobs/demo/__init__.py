"""The demonstration: the four methods of the paper on this machine, beside a competing load."""
