"""The Network Weather Service over HTTP: FastAPI behind a gate. Needs ``apples[service]``.

1. `messages`: what goes in and out.
2. `access`: which scope each route needs, the only such table; `gate`: host, token, size, time.
3. `handler`: what the routes share; `routes` and `naming`: the routes; `events`: push;
   `exposition`: the page for Prometheus.
4. `app`: all of it as one application; `upkeep`: what goes on beside the requests.
5. `serving`: where it may listen, and the server.
"""
