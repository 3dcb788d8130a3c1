"""The default forecasting profile, computed for one series.

1. `layout`: where each number of a series' state lies, and the constants.
2. `tick`: one tick as plain loops, compiled with numba.
3. `single_experts`, `single_series`: the same tick with NumPy installed only.
4. `vectorised`: the fields of a series as arrays, and what both engines have computed there.
5. `level`: whether a series left the levels that it held.
6. `multi_horizon`: `MultiHorizonForecaster`, the profile with either engine.

The profile exists in three forms on purpose. `nws.forecasters` defines each predictor readably, one
number at a time; the other two give the same bits as each other at the speed that a service and a
library without numba need. ``tests/nws/test_engine.py`` holds all of them equal.
"""
