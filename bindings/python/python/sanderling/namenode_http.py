"""Calls of a namenode over HTTP, with the credentials that clients of its cluster use."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
from pathlib import Path
from typing import Any

from sanderling.credentials import Place, resolve

CALL_SECONDS_MAX = 10.0
"""How long a namenode may take to connect, and to answer."""

TLS_NAME = "sanderling"
"""What the certificates of a cluster are made for unless `tls_name` is another."""


class _Https(http.client.HTTPSConnection):
    """Checks the certificate for the name that all servers of a cluster have."""

    def __init__(self, address: str, context: ssl.SSLContext, name: str) -> None:
        super().__init__(address, timeout=CALL_SECONDS_MAX, context=context)
        self._tls, self._name = context, name

    def connect(self) -> None:
        """Connects, and does the handshake for that name."""
        plain = socket.create_connection((self.host, self.port), self.timeout)
        self.sock = self._tls.wrap_socket(plain, server_hostname=self._name)


def call(
    address: str, method: str, target: str, body: dict[str, Any] | None = None
) -> tuple[int, dict[str, Any]]:
    """Calls a namenode at its HTTP address, `host:port`; returns the status and the JSON answer.

    The token and the authorities of certificates are those of the environment, as for a client.
    Raises `OSError` when the namenode cannot be reached or does not answer within 10 seconds, and
    `ValueError` when a file of the credentials cannot be used.
    """
    place = resolve(address)
    headers = {"Content-Type": "application/json"} if body else {}
    if token := _token(place):
        headers["Authorization"] = f"Bearer {token}"
    connection = _connection(address, place)
    try:
        connection.request(method, target, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        text = answer.read()
    except http.client.HTTPException as error:
        raise ConnectionError(f"{address} does not answer in HTTP: {error!r}") from error
    finally:
        connection.close()
    try:
        page = json.loads(text)
    except ValueError:
        page = None
    return answer.status, page if isinstance(page, dict) else {}


def _connection(address: str, place: Place) -> http.client.HTTPConnection:
    if place.tls_ca is None:
        return http.client.HTTPConnection(address, timeout=CALL_SECONDS_MAX)
    try:
        context = ssl.create_default_context(cafile=place.tls_ca)
    except OSError as error:
        raise ValueError(f"{place.tls_ca} has no certificates of authorities: {error}") from error
    return _Https(address, context, place.tls_name or TLS_NAME)


def _token(place: Place) -> str | None:
    if place.token_file is None:
        return place.token
    try:
        return Path(place.token_file).read_text().strip()
    except OSError as error:
        raise ValueError(f"the token cannot be read: {error}") from error
