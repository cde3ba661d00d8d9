"""Causes of asyncssh's errors for which it has no class of their own.

The only place where a login depends on the words of an error.
"""

from __future__ import annotations

from enum import Enum, auto

import asyncssh


class ErrorCause(Enum):
    """Meaning of an error for a login."""

    KEY_REVOKED = auto()
    NO_COMMON_HOST_KEY_TYPE = auto()
    """The server has no host key of a type that is known for it."""
    TOO_MANY_ATTEMPTS = auto()
    """sshd closes the connection after MaxAuthTries."""
    PASSPHRASE_NEEDED = auto()
    OTHER = auto()


def cause_of(error: BaseException) -> ErrorCause:
    """The cause of an error of asyncssh."""
    words = str(error.reason if isinstance(error, asyncssh.Error) else error).lower()
    match error:
        case asyncssh.HostKeyNotVerifiable() if "revoked" in words:
            return ErrorCause.KEY_REVOKED
        case asyncssh.KeyExchangeFailed() if "host key" in words:
            return ErrorCause.NO_COMMON_HOST_KEY_TYPE
        case asyncssh.KeyEncryptionError() | asyncssh.KeyImportError() if "passphrase" in words:
            return ErrorCause.PASSPHRASE_NEEDED
        case OSError() | asyncssh.Error() if "authentication" in words:
            return ErrorCause.TOO_MANY_ATTEMPTS
    return ErrorCause.OTHER
