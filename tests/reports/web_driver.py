"""A browser without a window, driven through chromedriver by plain HTTP (the WebDriver protocol)."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""The key under which the protocol hands out elements."""
_SWITCHES = """headless=new no-sandbox disable-gpu hide-scrollbars no-first-run disable-quic
disable-background-networking disable-component-update disable-sync"""
"""Nothing is loaded in the background: the pages need no network, and neither do the checks."""
_STARTS_WITHIN = 30.0
_SAVED_WITHIN = 20.0


class Browser:
    """One window."""

    def __init__(self, session: str) -> None:
        self._session = session

    def open(self, page: Path, *, width: int, dark: bool = False, script: bool = True) -> None:
        """Show a page at a width, in the light or dark scheme of the system; earlier complaints are forgotten."""
        self.complaints()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.devtools("Emulation.setEmulatedMedia", features=[scheme])
        self.devtools("Emulation.setScriptExecutionDisabled", value=not script)
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False
        )
        self._call("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a piece of JavaScript returns."""
        return self._call("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def click(self, selector: str) -> None:
        found = self._call("POST", "/element", {"using": "css selector", "value": selector})
        # Away from the edges, where the legend covers what lies below it.
        self._call(
            "POST",
            "/execute/sync",
            {"script": "arguments[0].scrollIntoView({block: 'center'})", "args": [found]},
        )
        self._call("POST", f"/element/{found[ELEMENT]}/click", {})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        strokes = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._call("POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def point_at(self, x: float, y: float) -> None:
        move = {"type": "pointerMove", "x": round(x), "y": round(y), "duration": 0}
        self._call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": [move]}]})

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """Press the button of the mouse at one place and release it at another."""
        (x0, y0), (x1, y1) = ((round(x), round(y)) for x, y in (start, end))
        moves: list[dict[str, Any]] = [
            {"type": "pointerMove", "x": x0, "y": y0, "duration": 0},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerMove", "x": (x0 + x1) // 2, "y": (y0 + y1) // 2, "duration": 20},
            {"type": "pointerMove", "x": x1, "y": y1, "duration": 20},
            {"type": "pointerUp", "button": 0},
        ]
        self._call("POST", "/actions", {"actions": [{"type": "pointer", "id": "mouse", "actions": moves}]})

    def saved(self, selector: str, folder: Path) -> Path:
        """The file that a click on a link or button downloads."""
        folder.mkdir(parents=True, exist_ok=True)
        self.devtools("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(folder))
        before = set(folder.iterdir())
        self.click(selector)
        deadline = time.monotonic() + _SAVED_WITHIN
        while time.monotonic() < deadline:
            done = [
                file
                for file in set(folder.iterdir()) - before
                if file.suffix != ".crdownload" and file.stat().st_size
            ]
            if done and not list(folder.glob("*.crdownload")) and not done[0].name.startswith("."):
                return done[0]
            time.sleep(0.05)
        raise TimeoutError(f"{selector} saved nothing.")

    def complaints(self) -> list[str]:
        """What the browser logged: broken policies and script errors."""
        return [entry["message"] for entry in self._call("POST", "/se/log", {"type": "browser"})]

    def picture(self) -> bytes:
        """The whole page as PNG."""
        answer = self.devtools("Page.captureScreenshot", captureBeyondViewport=True)
        return b64decode(answer["data"])

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self._call("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def _call(self, verb: str, path: str, body: Any) -> Any:
        return _request(verb, self._session + path, body)


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, until the end of the block."""
    driver, chromium = (shutil.which(program) for program in ("chromedriver", "chromium"))
    if driver is None or chromium is None:
        raise FileNotFoundError(
            "These checks need chromium and chromedriver (on Debian: apt-get install chromium chromium-driver)."
        )
    with subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True) as process:
        try:
            address = f"http://127.0.0.1:{_port(process)}"
            options = {"binary": chromium, "args": [f"--{switch}" for switch in _SWITCHES.split()]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            answer = _request("POST", f"{address}/session", {"capabilities": {"alwaysMatch": wanted}})
            session = f"{address}/session/{answer['sessionId']}"
            try:
                yield Browser(session)
            finally:
                _request("DELETE", session, None)
        finally:
            process.terminate()


def _port(process: subprocess.Popen[str]) -> int:
    """The port that the driver says it listens on."""
    assert process.stdout is not None
    for line in process.stdout:
        if "started successfully on port" in line:
            return int(line.rsplit(" ", 1)[1].strip(".\n"))
    raise ChildProcessError("chromedriver ended before it listened.")


def _request(verb: str, address: str, body: Any) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = Request(address, data, {"Content-Type": "application/json"}, method=verb)
    deadline = time.monotonic() + _STARTS_WITHIN
    while True:
        try:
            with urlopen(request, timeout=60) as answer:
                return json.loads(answer.read())["value"]
        except URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError) or time.monotonic() > deadline:
                raise
            time.sleep(0.1)
