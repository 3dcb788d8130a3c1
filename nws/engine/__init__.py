"""The default forecasting profile, computed for one series.

1. `layout`: where each number of a series' state lies, and the constants.
2. `tick`: one step of a series, compiled with numba or run by the interpreter.
3. `periods`: the lags of the auto-lag regression.
4. `level`: whether a series left the levels that it held.
5. `multi_horizon`: `MultiHorizonForecaster`, the profile.

`nws.forecasters` defines each predictor readably, one number at a time; ``tests/nws/test_engine.py`` compares the
step with them.
"""
