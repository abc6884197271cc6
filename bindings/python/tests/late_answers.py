"""A relay before a namenode, whose answers a test can hold back or lose."""

from __future__ import annotations

import contextlib
import socket
import threading


class LateAnswers:
    """Relays connections to a namenode.

    Requests are counted from the first one on that has `word` in it. From the `nth` of them on no
    answer passes until `release`. With `is_lost`, the answer to that request ends its connection
    instead, and nothing is held.
    """

    def __init__(self, address: str, word: bytes, nth: int, *, is_lost: bool = False) -> None:
        host, _, port = address.rpartition(":")
        self._namenode = (host, int(port))
        self._word = word
        self._left = nth
        self._is_counting = False
        self._is_lost = is_lost
        self._passing = threading.Event()
        self._passing.set()
        self.is_reached = False
        """Whether the request has passed."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def release(self) -> None:
        """Lets the answers pass that were held back, and all later ones."""
        self._passing.set()

    def close(self) -> None:
        """Accepts no more connections."""
        self.release()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._namenode)
                doomed = threading.Event()
                for relay in (self._requests, self._answers):
                    threading.Thread(
                        target=relay, args=(client, server, doomed), daemon=True
                    ).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, doomed: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 20):
                self._is_counting = self._is_counting or self._word in data
                if self._is_counting:
                    self._left -= 1
                    if self._left == 0:
                        (doomed.set if self._is_lost else self._passing.clear)()
                        self.is_reached = True
                server.sendall(data)
        server.close()

    def _answers(
        self, client: socket.socket, server: socket.socket, doomed: threading.Event
    ) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 20):
                self._passing.wait()
                if doomed.is_set():
                    break
                client.sendall(data)
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        client.close()
