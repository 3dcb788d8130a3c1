"""Benchmarks: reproductions of the papers' figures, and measurements against this project's own bars.

``python -m benchmarks`` runs them; `README.md` beside this file describes the command and each benchmark.
"""
