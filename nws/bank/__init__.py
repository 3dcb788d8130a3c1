"""The default profile of the NWS for many series at once.

In reading order: `nws.bank.layout` (what is known of a series, and the constants),
`nws.bank.vectors` (a step of all, with NumPy) with `nws.bank.windows` and `nws.bank.scoring`,
`nws.bank.compiled` and `nws.bank.parts` (the same as loops, for numba), `nws.bank.bank` (`Bank`).
"""
