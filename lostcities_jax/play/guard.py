"""Who may talk to the server of the board, and how much they may say.

A server on the loopback interface is still within reach of every page open in a browser of
this machine. Requests from other pages carry their Origin; a page that has its own name
resolve to this machine (DNS rebinding) carries that name as the Host. Both are refused.
"""

import ipaddress
import json
import urllib.parse
from typing import Any

from starlette.exceptions import HTTPException
from starlette.middleware.base import RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lostcities_jax.errors import shown

MAX_BODY_BYTES = 512 * 1024  # a recorded game of 10,000 turns fits in
_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Refuses requests of other sites, and adds headers that keep the page to itself."""

    def __init__(self, host: str):
        """`host` is the address or name that the server listens on."""
        self._host = host.lower()

    async def __call__(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """A Starlette dispatch function."""
        refusal = self._refusal(request)
        if refusal is None:
            response = await call_next(request)
        else:
            response = JSONResponse({"error": refusal}, status_code=403)
        response.headers.update(_HEADERS)
        return response

    def _refusal(self, request: Request) -> str | None:
        host = request.headers.get("host", "")
        if not self._is_own(_host_name(host)):
            return f"Host is {shown(host)}; allowed: the address that the board was started with"
        origin = request.headers.get("origin")
        if origin is not None and origin.lower() not in _origins(host):
            return f"Origin is {shown(origin)}; allowed: the board's own page"
        return None

    def _is_own(self, name: str) -> bool:
        if name in _LOOPBACK_NAMES or name == self._host:
            return True
        # Listening on all interfaces, any address may be ours; a name may be somebody's trick.
        return self._host in ("0.0.0.0", "::", "") and _is_address(name)


def _host_name(host: str) -> str:
    try:
        return urllib.parse.urlsplit(f"//{host}").hostname or "?"
    except ValueError:
        return "?"


def _origins(host: str) -> tuple[str, str]:
    return f"http://{host.lower()}", f"https://{host.lower()}"


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


async def read_object(request: Request) -> dict[str, Any]:
    """The JSON object in the body of a request.

    Only JSON may be sent: browsers ask before they send that to another site, and forms cannot.

    Raises:
      HTTPException: 415, 413 or 400 for another type, too much, or no JSON object.
    """
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"Content-Type is {shown(kind)}; allowed: application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            raise HTTPException(413, f"the body is too long; allowed: {MAX_BODY_BYTES} bytes")
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is no JSON; allowed: one JSON object") from None
    if not isinstance(value, dict):
        raise HTTPException(400, f"the body is {shown(value)}; allowed: one JSON object")
    return value
