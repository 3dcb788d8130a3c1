"""The default forecasting profile, computed for one series or for many at once.

1. `layout`: where each number of a series' state lies, and the constants.
2. `vectorised`: one tick of many series with NumPy; the definition of the order of operations.
3. `tick`: the same tick as plain loops, compiled with numba.
4. `single_experts`, `single_series`: the same tick for a single series with NumPy installed only.
5. `bank`: `Bank`, many series side by side. `multi_horizon`: `MultiHorizonForecaster`, one series.

The profile exists in four forms on purpose. `nws.forecasters` defines each predictor readably, one
number at a time; the other three give the same bits as one another at the speed that a service, a
library without numba, and a single series need. ``tests/nws/test_engine.py`` holds all of them equal.
"""
