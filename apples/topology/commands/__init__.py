"""The commands `topology` and `exec`."""
