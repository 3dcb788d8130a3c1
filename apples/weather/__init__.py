"""The weather of a decision: what each host and link is forecast to give at one moment, and what they carry now.

Read `conditions` (a host list under a weather: the forecast where there is one, else the value of the list),
`source` (a service that is configured, else sensors), `service` (a client of a Network Weather Service), `local`
(sensors of this process), `remote` (sensors on other machines, over ssh, and links that no probe has crossed) and
`history` (measurements that are remembered from run to run). A static decision loads `conditions` only. `load` is
the monitor of running jobs; `commands` and `pages` are the front end of the service.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
