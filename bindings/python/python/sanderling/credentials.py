"""The credentials of a client: a token, and how certificates are checked."""

from __future__ import annotations

import os

from sanderling import _sanderling

TOKEN_VARIABLE = "SANDERLING_TOKEN"
"""The environment variable that holds a token."""

TOKEN_FILE_VARIABLE = "SANDERLING_TOKEN_FILE"
"""The environment variable with the file that has one; it is read for every connection."""

TLS_CA_VARIABLE = "SANDERLING_TLS_CA"
"""The environment variable with the file of the authorities that certificates come from."""

TLS_NAME_VARIABLE = "SANDERLING_TLS_NAME"
"""The environment variable with the name that certificates are made for."""

Path = str | os.PathLike[str]


def shown(
    token: str | None, token_file: Path | None, tls_ca: Path | None
) -> _sanderling.Credentials | None:
    """Returns what is shown, from the environment where it is not given; None for nothing.

    Raises `ValueError` when a file cannot be read or is none.
    """
    if token is not None and token_file is not None:
        raise ValueError("token and token_file cannot both be given: pass one")
    if token is None and token_file is None:
        token_file = _variable(TOKEN_FILE_VARIABLE)
        token = None if token_file else _variable(TOKEN_VARIABLE)
    tls_ca = _variable(TLS_CA_VARIABLE) if tls_ca is None else tls_ca
    if token is None and token_file is None and tls_ca is None:
        return None
    return _sanderling.Credentials(token, token_file, tls_ca, _variable(TLS_NAME_VARIABLE))


def _variable(name: str) -> str | None:
    return os.environ.get(name) or None
