"""What every part keeps on disk: one journal, one atomic document, one lock, one state directory.

Read `documents` (a file that is replaced whole, and its lock), `journal` (checksummed lines that are durable when
they are acknowledged), `folder` (a directory used by descriptor only) `state` (the JSON
documents of the state directory) and `naming` (the path in errors of a full disk).
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
