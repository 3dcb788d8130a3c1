"""The Network Weather Service: in this process, or over HTTP. HTTP needs ``apples[service]``.

1. `in_process`: `NetworkWeatherService`: sensors, memory, forecasters and weather as one object.
2. `database`: the series and their forecasters in the directory of ``nws serve``. `forecasting`:
   forecasters that follow the database, in the thread of `worker`.
3. `tokens`: bearer tokens and scopes. `registry`: leases of sensors and other processes.
4. `messages`: the messages of the HTTP interface. `authorisation`: limits, tokens and scopes. `handler`:
   the state that the routes share; `grid`: measurements at regular times; `routes`; `events`: push; `metrics`: the
   page for Prometheus.
5. `app`: all of it as one ASGI application, with the periodic work. `listening`: where
   it may listen. `server`: the HTTP server.
"""
