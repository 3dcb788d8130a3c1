"""Where processors sit inside a host, and how the processors of a host are divided.

Read in this order: `distribute` (how many processors each job of a node gets).
"""
