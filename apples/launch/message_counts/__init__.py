"""How many messages, and how many bytes, the ranks of a run send to each other.

`arrays` derives the counts from declared arrays, `counter` counts the calls of an MPI program with a library that
is loaded into each rank, and `on_host` collects the counts of one host.
"""
