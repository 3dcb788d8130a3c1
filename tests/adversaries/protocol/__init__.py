"""The control protocol of malleable jobs on a bad network with an adversary: one seed, one history."""
