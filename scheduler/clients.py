"""Clients of Dask clusters that sessions make for themselves."""

import concurrent.futures
import contextlib

import distributed

from ..errors import DataError, StradaskError


def open_client(scheduler, timeout):
    """Make a client of our own, which its maker closes.

    Parameters
    ----------
    scheduler : str or distributed.Client
        An address, or a client whose scheduler and certificates are taken.
    timeout : float
        Seconds to wait for the scheduler.

    Returns
    -------
    distributed.Client

    Raises
    ------
    DataError
        If no scheduler answers, or the certificates for ``tls://`` are missing.
    """
    address, security = scheduler, distributed.Security()
    if not isinstance(address, str):
        address, security = scheduler.scheduler.address, scheduler.security
    try:  # what can be seen beforehand: a client that fails for it takes a minute to close
        distributed.comm.resolve_address(address)
        if address.startswith("tls://") and not security.get_connection_args("client").get("ssl_context"):
            raise ValueError("there are no certificates")
        return distributed.Client(
            address, security=security, set_as_default=False, name="stradask", timeout=timeout
        )
    except (OSError, ValueError, TypeError) as error:
        raise DataError(
            f"engine={address!r}: no Dask scheduler answers there ({error}); is the address right, and "
            "for tls:// are the certificates in dask.config under distributed.comm.tls?"
        ) from error


@contextlib.contextmanager
def scheduler_named(client):
    """Say in our words that the scheduler has gone, where what Dask raises of it would come through.

    Parameters
    ----------
    client : distributed.Client
        The one that is talked through within the ``with`` block.

    Raises
    ------
    StradaskError
        For a connection to the scheduler that broke, and for tasks that it took along.
    """
    try:
        yield
    except StradaskError:
        raise
    except Exception as error:
        lost = (distributed.comm.CommClosedError, concurrent.futures.CancelledError)
        if client.status == "running" and not isinstance(error, lost):
            raise
        raise StradaskError(
            f"the scheduler went away in mid-fit, or took the fit's tasks away ({error}): is it running? The "
            "same call finds what was written to a checkpoint"
        ) from error
