"""The client's recording half as one file: GET /tracer.py, for environments in which no package can be installed."""

from pathlib import Path

from fastapi import FastAPI
from starlette.responses import Response

INSTALLED = Path(__file__).with_name("tracer.py.txt")
"""Its place in a wheel of the application (hatch_build.py)."""
CHECKOUT = Path(__file__).parents[3] / "clients" / "python" / "braidstream" / "tracer.py"


def tracer_source() -> bytes:
    """The file as it is in braidstream-client."""
    return (INSTALLED if INSTALLED.is_file() else CHECKOUT).read_bytes()


def add_tracer(app: FastAPI) -> None:
    """Add the route; it needs no token, for the file is public."""

    @app.get(
        "/tracer.py", tags=["operations"], summary="The recording client, as one Python file", response_class=Response
    )
    async def tracer() -> Response:
        return Response(tracer_source(), media_type="text/x-python; charset=utf-8")
