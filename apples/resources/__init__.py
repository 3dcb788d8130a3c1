"""What there is to run on: hosts, the links between them, and the list a user writes down.

Read in this order: `host` (one `Host`; a `ResourceSet` is an ordered tuple of them: strip neighbours),
`network` (`Link`, and `Network`, which answers for any pair without storing pairs), `host_list` (the
TOML file, checked).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
