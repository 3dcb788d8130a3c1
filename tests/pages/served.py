"""A server of pages in a thread of this process, and a browser's part of the conversation."""

import re
import threading
from dataclasses import dataclass

import pytest
import requests
from waiting import until

from apples.__main__ import PAGES
from apples.ui import Sessions, Streams, create_app
from apples.ui import Site as ServedSite
from nws import HttpServer, Listen

TOKEN = re.compile(r'name="token" value="([^"]+)"')


@dataclass
class Site:
    """A running server.

    `keys` are those of the links it told, the last of which works.
    """

    server: HttpServer
    keys: list

    @property
    def url(self):
        return self.server.url

    def link(self):
        return f"{self.url}/enter?key={self.keys[-1]}"

    def visitor(self):
        """Return a session of `requests` that was admitted."""
        session = requests.Session()
        assert session.get(self.link()).status_code == 200
        return session

    def post(self, session, path, page="/", headers=None, **fields):
        """Send a form as a page of ours does."""
        token = TOKEN.search(session.get(self.url + page).text)
        data = {"token": token[1] if token else "", **fields}
        return session.post(self.url + path, data=data, headers=headers, allow_redirects=False)


@pytest.fixture
def own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NWS_SERVICE", "")
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


@pytest.fixture
def known_streams():
    return Streams()


@pytest.fixture
def site(own_state, known_streams):
    keys = []
    sessions, streams = Sessions(keys.append), known_streams
    app = create_app(ServedSite(own_state, streams=streams), PAGES, sessions)
    server = HttpServer(app, Listen(port=0))
    server.ending = streams.close
    sessions.announce()
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    yield Site(server, keys)
    server.should_exit = True
    thread.join(30)


@pytest.fixture
def visitor(site):
    return site.visitor()


HOSTS = """
# our machines
[[host]]
name = "ada"
seconds_per_point = 1e-8  # measured in May
free_memory = "4 GB"
[[host]]
name = "bob"
seconds_per_point = 2e-8
cpu = 0.5
"""


@pytest.fixture
def file(own_state):
    """The address of the page of a host list, which has a form."""
    (own_state / "hosts.toml").write_text(HOSTS)
    return "/hosts?name=hosts.toml"
