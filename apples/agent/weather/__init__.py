"""The weather of one decision: what each host and link is forecast to give, all at one moment.

Read `conditions` (the host list under a weather: the forecast where there is one, else the list's value),
`source` (a service that is configured, else sensors), `service` (asking a Network Weather Service), `local`
(sensors of this process), `remote` (sensors on other machines, over ssh, and links that no probe crossed),
`history` (measurements remembered from run to run). A static decision loads `conditions` only.
"""
