"""Hosts, the links between them, the user's host list, and the shares of a decision.

Read in this order: `host` (one `Host`; a `ResourceSet` is an ordered tuple of them: strip neighbours),
`network` (`Link`, and `Network`, which gives the link of any pair without storing pairs), `host_list` (the
TOML file, checked), `schedule` (schedules, estimates and rejections: the values that packages exchange),
`apportionment` (integer parts of a total) and `distances` (the relative cost of a byte between two hosts).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
