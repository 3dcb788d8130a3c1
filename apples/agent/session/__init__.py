"""A session: the only way from files to a decision, and from a decision to a run.

Read `spec` (what is asked), `planning` (`plan`), `results` (what is handed back, and its JSON) and `running`
(`prepare`). Nothing here prints: lines for the user and progress go to callables.
"""
