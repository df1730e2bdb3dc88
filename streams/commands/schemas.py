"""`braid schemas`: models, committed Avro files and the registry agree; the kinds of events as a page."""

import asyncio
import sys
from typing import Annotated

from cyclopts import App, Parameter

from schemas.errors import SchemaError

app = App(name="schemas", help="Check and register the Avro schemas; describe the kinds of events.")


@app.command
def check() -> None:
    """Compare the models with the committed files, and every version with the earlier ones (BACKWARD_TRANSITIVE).

    Example: `braid schemas check`
    """
    from schemas import versions

    problems = versions.check()
    if problems:
        raise SchemaError("\n  ".join(["schemas do not agree:", *problems]))
    count = sum(len(found) for found in versions.committed().values())
    sys.stdout.write(
        f"{len(versions.RECORDS)} records, {count} versions: models and files agree, every version reads the earlier ones\n"
    )


@app.command
def register() -> None:
    """Register the newest version of every record under `<topic>-value`, with compatibility BACKWARD_TRANSITIVE.

    Example: `braid schemas register`
    """
    from streams.cluster.config import load
    from streams.cluster.connections import registry_of, resolve
    from streams.log.wire import Codec

    settings = resolve(load())
    if not settings.registry:
        raise SchemaError("no schema registry is configured: set BRAID_REGISTRY, or run `braid broker start`")

    async def send() -> dict[str, int]:
        registry = registry_of(settings)
        try:
            return await Codec(registry, prefix=settings.prefix).register()
        finally:
            if registry is not None:
                await registry.close()

    for subject, schema_id in asyncio.run(send()).items():
        sys.stdout.write(f"{schema_id:>6}  {subject}\n")


@app.command
def write(*, amend: Annotated[bool, Parameter(negative="")] = False) -> None:
    """Write the Avro of models that changed, as the next version.

    Example: `braid schemas write`

    Parameters
    ----------
    amend
        Write the last version again instead: only for one that nobody has used yet.
    """
    from schemas import versions

    for path in versions.write(amend=amend):
        sys.stdout.write(f"{path}\n")


@app.command
def events() -> None:
    """Write the page about the kinds of events, their fields and an example of each, as Markdown.

    Example: `braid schemas events`
    """
    from streams.views.event_page import event_page

    sys.stdout.write(event_page())
