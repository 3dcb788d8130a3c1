"""The demonstration: the four methods of the paper on this machine, with a competing load."""
