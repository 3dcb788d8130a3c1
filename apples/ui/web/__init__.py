"""The web server of `apples serve`: admission, the frame of a page, and the routes of each package.

Read `gate` (Host, session and origin of a request), `site` (the application, its streams and its folder) and
`serve` (the command). It needs ``apples[service]``: FastAPI and uvicorn. Only ``apples serve`` loads this
package.
"""
