"""The parts of front ends: the command line, options, tables, formats, charts, and the shell of a page.

`command_line` runs a command and turns an error into one line and an exit code. `options` has the options that
several commands share, and `tokens` and `completion` read and complete their values. `units`, `tables`, `formats`
and `terminal` make text; `page`, `charts`, `palette` and `provenance` make pages; `web` serves them. Each package
owns its commands, texts and pages. This package imports no package with a front end.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
