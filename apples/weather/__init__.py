"""The weather of a decision: the forecast of each host and link at one moment, and their load now.

Read `conditions` (a host list under a weather: the forecast where there is one, else the value of the list),
`source` (a service that is configured, else sensors), `service` (a client of a Network Weather Service), `local`
(sensors of this process), `remote` (sensors on other machines, over ssh), `links` and `link_choice` (the links
that a decision depends on, measured) and `history` (measurements that are remembered from run to run). A static
decision loads `conditions` only. `load` is the monitor of running jobs; `commands`, `text` and `pages` are the
front end of the service.
"""

from apples import lazy

__getattr__, __dir__, __all__ = lazy(__name__, __file__)
