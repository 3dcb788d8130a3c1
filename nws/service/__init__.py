"""The Network Weather Service: in this process, or over HTTP. HTTP needs ``apples[service]``.

1. `in_process`: `NetworkWeatherService`: sensors, memory, forecasters and weather as one object.
2. `database`: what ``nws serve`` keeps in its directory: the log, the series, their forecasters.
   `forecasting`: forecasters that follow the log; `state_json`: their states as JSON.
3. `tokens`: bearer tokens and scopes. `registry`: leases of sensors and other processes.
4. `messages`: what goes in and out over HTTP. `authorisation`: the scope that each route needs, and
   what every request passes first. `handler`: what the routes share; `routes`; `events`: push;
   `metrics`: the page for Prometheus.
5. `app`: all of it as one ASGI application, with what goes on beside the requests. `listening`: where
   it may listen. `server`: the HTTP server.
"""
