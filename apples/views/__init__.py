"""Results as a person reads them: text and saved pages, both showing the numbers of one JSON document.

Read `plan` and `run_text` (a plan, a run and the check of its prediction, as text), `run_page` and `demo` (saved
pages, made by `page`, `charts`, `drawing`, `palette` and `formats`), `provenance` (how to make a report again).
`job`, `hosts`, `topology`, `lab` and `weather` are the text of other commands; `simulation` is that of simulations
and sweeps, `simulation_pages`, `simulation_charts` and `simulation_facts` make their pages. `terminal` escapes
what steers one.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
