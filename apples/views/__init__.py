"""One report, three faces: the JSON document, the terminal text and the saved page show the same numbers.

Read `plan_document` (the JSON of a plan), `plan_text` (the terminal's face of that document),
`run_document` and `run_text` (a run and the check of its prediction), `demo_page` and `run_page` (the saved
pages; `page`, `charts` and `drawing` make them). The pages of simulations: `sim_page`, `sim_sweep_page`.
"""
