"""Print the view of ``apples calibrate`` for fixed speeds."""

from apples.agent import SpeedFunction, calibration_text

host = SpeedFunction((100.0, 500.0), (1e-9, 1.5e-9), 0.02)
gpu = SpeedFunction((500.0,), (1e-10,), 0.01, memory=8e9)
print(calibration_text({"ada": {"numpy": host, "cuda": gpu}, "bob": {"numpy": host}}))
