"""Hosts, the links between them, the list that a user writes, and the shares that a decision gives out.

Read in this order: `host` (one `Host`; a `ResourceSet` is an ordered tuple of them: strip neighbours),
`network` (`Link`, and `Network`, which answers for any pair without storing pairs), `host_list` (the
TOML file, checked), `schedule` (schedules, estimates and rejections: the values that rooms exchange),
`apportionment` (whole shares of a whole) and `distances` (the relative cost of a byte between two hosts).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
