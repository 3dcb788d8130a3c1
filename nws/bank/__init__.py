"""The default profile of the NWS for many series at once.

In reading order: `nws.bank.layout` (what is known of a series, and the constants),
`nws.bank.vectorised` (a step of all, with NumPy) with `nws.bank.vectorised` and `nws.bank.vectorised`,
`nws.bank.compiled` and `nws.bank.compiled` (the same as loops, for numba), `nws.bank.bank` (`Bank`).
"""
