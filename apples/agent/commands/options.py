"""Options of the commands that plan one application."""

from __future__ import annotations

from apples.ui.parameters import option

blueprint_name_option = option(
    "--blueprint", metavar="NAME", help="Name, module:name or file.py:name.", show_default=False
)
weather_name_option = option(
    "--weather",
    metavar="NAME|FILE",
    default="live",
    help="static, live, remembered, or a recorded weather file.",
)
learned_option = option(
    "--learned",
    is_flag=True,
    help="With --weather static or a recorded file: use the learned speeds and corrections.",
)
fresh_option = option(
    "--fresh", is_flag=True, help="Ignore remembered measurements; measure every host and link."
)
planner_name_option = option(
    "--planner", metavar="NAME", help="time_balancing, linear, milp, rectangles, or your own."
)
distance_name_option = option(
    "--distance", metavar="NAME", help="communication, paper, or your own."
)
model_name_option = option("--model", metavar="NAME", help="strip, or your own.")
