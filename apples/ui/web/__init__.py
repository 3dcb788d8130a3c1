"""The web server of `apples serve`: who is admitted, the frame of a page, and the routes that each room adds.

Read `gate` (Host, session and origin of a request), `site` (the application, its streams and its folder) and
`serve` (the command). It needs ``apples[service]``: FastAPI and uvicorn. Only ``apples serve`` loads this package.
"""
