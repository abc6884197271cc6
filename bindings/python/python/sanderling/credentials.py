"""The cluster of a client: its address, and the credentials that belong to it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from sanderling import _sanderling

PathText = str | os.PathLike[str]


@dataclass(frozen=True)
class Place:
    """A cluster's address and credentials, and the context that they are from, if it is one."""

    address: str
    context: str | None
    token: str | None
    token_file: PathText | None
    tls_ca: PathText | None
    tls_name: str | None

    def shown(self) -> _sanderling.Credentials | None:
        """Returns what is shown; None for nothing.

        Raises `ValueError` when a file cannot be read or is none.
        """
        if self.token is None and self.token_file is None and self.tls_ca is None:
            return None
        return _sanderling.Credentials(
            self.token, self.token_file, self.tls_ca, self.tls_name
        )


def resolve(
    address: str | None = None,
    context: str | None = None,
    token: str | None = None,
    token_file: PathText | None = None,
    tls_ca: PathText | None = None,
    tls_name: str | None = None,
) -> Place:
    """Returns the cluster: what is given, the environment, the current context, the default.

    Raises `ValueError` for a wrong address, a context that does not exist, or a file of contexts
    that cannot be used; its text ends with the next step.
    """
    if token is not None and token_file is not None:
        raise ValueError("token and token_file cannot both be given: pass one")
    return Place(
        *_sanderling.resolve(address, context, token, token_file, tls_ca, tls_name)
    )
