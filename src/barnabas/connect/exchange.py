"""Owns one HTTP exchange: a request, its retries, and what its failure is called. Used by the HTTP source and sink.

What may pass (no connection, a timeout, 429, 5xx) is tried again with growing pauses; what will not (other 4xx) is
refused at once. Runs in executors too, so it knows neither Spark nor threads.
"""

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from barnabas.connect.option import ConnectError

MAX_ANSWER_BYTES = 64 * 1024 * 1024
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_MAY_PASS = frozenset({408, 425, 429})


class HttpRefused(ConnectError):
    """The server has understood, and does not want it: trying again will not help."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """How requests to one address are made."""

    url: str
    headers: Mapping[str, str]
    timeout_s: float
    retries: int

    def check(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConnectError(f"{self.url!r} is no address: write http://HOST/PATH or https://HOST/PATH.")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        try:
            socket.create_connection((parts.hostname, port), min(self.timeout_s, 5.0)).close()
        except OSError as error:
            raise ConnectError(
                f"No server answers at {parts.hostname}:{port} ({error.strerror or error})."
            ) from error

    def ask(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> bytes:
        """What the server answers; a ConnectError when it does not, an HttpRefused when it will not."""
        request = Request(url, body, {**self.headers, **(headers or {})}, method=method)
        for attempt in range(self.retries + 1):
            try:
                return self._once(request)
            except HTTPError as error:
                with error:
                    said = error.read(200).decode(errors="replace").strip()
                    wait = _wanted_pause(error)
                problem = f"{error.code} {error.reason}{': ' if said else ''}{said}"
                if error.code < 500 and error.code not in _MAY_PASS:
                    raise HttpRefused(f"{method} {url} was refused: {problem}") from error
            except (URLError, OSError, HTTPException) as error:
                problem, wait = str(getattr(error, "reason", None) or error) or type(error).__name__, None
            if attempt < self.retries:
                pause(min(_LONGEST_PAUSE_S, wait if wait is not None else _FIRST_PAUSE_S * 2**attempt))
        times = f"{self.retries + 1} times" if self.retries else "once"
        raise ConnectError(f"{method} {url} was tried {times} in vain: {problem}.")

    def _once(self, request: Request) -> bytes:
        with urlopen(request, timeout=self.timeout_s) as answer:
            found: bytes = answer.read(MAX_ANSWER_BYTES + 1)
        if len(found) > MAX_ANSWER_BYTES:
            raise HttpRefused(
                f"{request.full_url} answers with more than {MAX_ANSWER_BYTES >> 20} MiB at once."
            )
        return found


def _wanted_pause(error: HTTPError) -> float | None:
    try:
        return float(error.headers.get("Retry-After", ""))
    except ValueError:
        return None
