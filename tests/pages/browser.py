"""A headless Chromium over its debugging pipe: no driver, no library, no network."""

import json
import os
import select
import shutil
import subprocess
import time

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--proxy-server=127.0.0.1:9", "--remote-debugging-pipe",
)  # fmt: skip
DEADLINE = 60.0


def chromium():
    """Return the path of a Chromium, None where there is none."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next((path for path in map(shutil.which, names) if path), None)


class Browser:
    """One page of a browser that cannot reach any network; remembers what it asked for and complained of."""

    def __init__(self, folder):
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        script = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", script, chromium(), *FLAGS, f"--user-data-dir={folder}"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._count, self._session = b"", 0, None
        self.requests, self.complaints, self._loaded = [], [], False
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.ask("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Network", "Runtime", "Log", "Audits"):
            self.ask(f"{domain}.enable")

    def close(self):
        """End the browser and wait for it."""
        os.close(self._write)
        os.close(self._read)
        self._process.terminate()
        self._process.wait(DEADLINE)

    def open(self, path, *, width=1000, dark=False):
        """Load a file at a width, and wait until it is there."""
        self.go(path.as_uri(), width=width, dark=dark)

    def go(self, url, *, width=1000, dark=False):
        """Load an address at a width, and wait until it is there."""
        self.requests, self.complaints, self._loaded = [], [], False
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=800, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask("Page.navigate", url=url)
        self.arrive()

    def arrive(self):
        """Wait until the page that was asked for, in whatever way, is there."""
        end = time.monotonic() + DEADLINE
        while not self._loaded:
            self._receive(end)
        self._loaded = False

    def click(self, selector):
        """Click what a selector finds; a page that this asks for is waited for by `arrive`."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{found}.click()")

    def evaluate(self, expression):
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key):
        """Press a key and let go of it."""
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=9
            )

    def ask(self, method, **parameters):
        """Send a command and return its answer."""
        self._count += 1
        number = self._count
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + DEADLINE
        while True:
            answer = self._receive(end)
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]

    def _receive(self, end):
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            assert ready, "the browser said nothing in time"
            chunk = os.read(self._read, 65536)
            assert chunk, "the browser ended"
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\0")
        message = json.loads(line)
        self._note(message.get("method"), message.get("params", {}))
        return message

    def _note(self, method, parameters):
        if method == "Network.requestWillBeSent":
            self.requests.append(parameters["request"]["url"])
        elif method in {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}:
            self.complaints.append(parameters)
        elif method == "Audits.issueAdded":
            self.complaints.append(parameters["issue"]["code"])
        elif method == "Page.loadEventFired":
            self._loaded = True
