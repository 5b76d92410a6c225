"""Drives the lab's Chromium over its DevTools protocol: two pipes, no port, no library.

Every message is JSON that ends with a zero byte, on the file descriptors 3 and 4 of the browser (Chromium's
``--remote-debugging-pipe``). Not here: what a page should look like.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import tempfile
import threading
import time
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Self

from lab.machine.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lab.tools.chromium import Chromium

ANSWER_S: Final = 60.0
POLL_S: Final = 0.05
NETWORK_CHANGED: Final = "net::ERR_NETWORK_CHANGED"
ARGUMENTS: Final = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb", "--mute-audio",
    "--font-render-hinting=none", "--remote-debugging-pipe",
)  # fmt: skip


class BrowserError(LabError):
    """The browser, or a script in a page, did not do what was asked."""


class Browser:
    """A browser with one page. ``width`` and ``height`` are those of its window in CSS pixels."""

    def __init__(self, chromium: Chromium, *, width: int = 1280, height: int = 900) -> None:
        self._stack = contextlib.ExitStack()
        profile = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True))
        commands, self._to_browser = os.pipe()
        self._from_browser, answers = os.pipe()
        size = f"--window-size={width},{height}"
        # The shell gives the pipes the numbers that Chromium wants, whatever they are here.
        script = f'exec 3<&{commands} 4>&{answers} && exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "bash", str(chromium.program), *ARGUMENTS, f"--user-data-dir={profile}", size],
            env=chromium.environment,
            pass_fds=(commands, answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._number = 0
        self._answers: dict[int, SimpleQueue[dict[str, Any]]] = {}
        self.complaints: list[str] = []
        threading.Thread(target=self._read, name="browser", daemon=True).start()
        self._session = ""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.close(self._to_browser)
        self._process.terminate()
        try:
            self._process.wait(ANSWER_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stack.close()

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        self._number += 1
        number, answers = self._number, SimpleQueue[dict[str, Any]]()
        self._answers[number] = answers
        message: dict[str, object] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to_browser, json.dumps(message).encode() + b"\0")
        try:
            answer = answers.get(timeout=ANSWER_S)
        except Empty:
            raise BrowserError(f"the browser does not answer {method}") from None
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']['message']}")
        result: dict[str, Any] = answer["result"]
        return result

    def go(self, url: str) -> None:
        """Open a page; `wait` for what is expected on it."""
        self.call("Page.navigate", url=url)

    def run(self, script: str) -> Any:
        """Return the value of a JavaScript expression, having waited for it if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            details = answer["exceptionDetails"]
            raise BrowserError(f"{script}: {details.get('exception', {}).get('description', details['text'])}")
        return answer["result"].get("value")

    def wait(self, script: str, *, timeout_s: float = ANSWER_S) -> None:
        """Return once an expression is true.

        Chromium gives up what it loads when a network interface comes or goes, as those of other tests do: then the
        page is loaded again.
        """
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if any(NETWORK_CHANGED in each for each in self.complaints):
                self.complaints[:] = [each for each in self.complaints if NETWORK_CHANGED not in each]
                self.call("Page.reload")
            with contextlib.suppress(BrowserError):  # between two pages
                if self.run(f"Boolean({script})"):
                    return
            time.sleep(POLL_S)
        raise BrowserError(f"this has not become true: {script}", hint=self._seen())

    def press(self, key: str) -> None:
        """Press and release a key, by its name of the DOM, such as `ArrowDown` or `n`."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(key, 0)
        common = {"key": key, "windowsVirtualKeyCode": code}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def write(self, text: str) -> None:
        """Write a text where the focus is."""
        for key in text:
            self.press(key)

    def resize(self, width: int, height: int) -> None:
        """Give the page another size."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, scheme: str) -> None:
        """Have the system prefer "light" or "dark" colours."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        data = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        path.write_bytes(base64.b64decode(data))

    def _seen(self) -> str:
        with contextlib.suppress(BrowserError):
            return str(self.run("`${location.pathname}${location.hash}: ${document.body.innerText.slice(0, 500)}`"))
        return "the page answers nothing"

    def _read(self) -> None:
        with open(self._from_browser, "rb", closefd=True) as pipe:
            for text in _messages(pipe):
                message = json.loads(text)
                if "id" in message:
                    self._answers.pop(message["id"]).put(message)
                elif complaint := _complaint(message):
                    self.complaints.append(complaint)


def _messages(pipe: Any) -> Iterator[bytes]:
    rest = b""
    while piece := pipe.read1(1 << 16):
        *whole, rest = (rest + piece).split(b"\0")
        yield from whole


def _complaint(message: dict[str, Any]) -> str:
    """Return what a page complains of: an exception, an error in its console, something that its policy refused."""
    parameters = message.get("params", {})
    if message.get("method") == "Runtime.exceptionThrown":
        details = parameters["exceptionDetails"]
        return str(details.get("exception", {}).get("description", details["text"]))
    if message.get("method") == "Network.loadingFailed" and parameters.get("errorText") == NETWORK_CHANGED:
        return NETWORK_CHANGED  # of a form that was sent, the log does not tell
    if message.get("method") == "Log.entryAdded" and parameters["entry"]["level"] == "error":
        return f"{parameters['entry']['text']} {parameters['entry'].get('url', '')}".strip()
    return ""
