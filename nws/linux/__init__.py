"""What the Linux kernel tells, as numbers.

Text is read in one place and parsed by pure functions, so that they are tested on recorded text.

1. `proc`: the formats of ``/proc``: load average, threads, CPU lists, memory.
2. `run_queue`: who competes for a set of CPUs, from the threads that want to run now.
3. `cgroup`: what the control groups (v1, v2, both) leave of CPUs and memory.
4. `spin`: a program that spins for a moment and says what it got; `probe` runs it.

The functions that read take the root directory of the tree they read (``/`` unless said), so a
recorded tree serves as well as a live one.
"""
