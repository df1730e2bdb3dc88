"""`braid schemas`: models, committed Avro files and the registry agree; the reference, as pages and as AsyncAPI."""

import asyncio
import sys
from typing import Annotated, Literal

from cyclopts import App, Parameter

from schemas.errors import SchemaError

app = App(name="schemas", help="Check and register the Avro schemas; write the reference.")


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
        Write the last version again instead: only for one that is not in use yet.
    """
    from schemas import versions

    for path in versions.write(amend=amend):
        sys.stdout.write(f"{path}\n")


@app.command
def asyncapi() -> None:
    """Write the topics as an AsyncAPI 3 document: channels, messages with their Avro and headers, settings of the broker.

    Example: `braid schemas asyncapi`
    """
    import json

    from streams.views.reference.asyncapi import asyncapi as document

    sys.stdout.write(json.dumps(document(), indent=2, ensure_ascii=False) + "\n")


@app.command
def page(name: Literal["configuration", "events", "records", "topics"]) -> None:
    """Write a page of the reference as Markdown, made from the code.

    Example: `braid schemas page configuration`

    Parameters
    ----------
    name
        Every setting; every kind of event; every record and field; the table of topics.
    """
    if name == "configuration":
        from streams.views.reference.configuration_page import configuration_page

        text = configuration_page()
    elif name == "events":
        from streams.views.reference.event_page import event_page

        text = event_page()
    elif name == "records":
        from streams.views.reference.record_page import record_page

        text = record_page()
    else:
        from streams.views.reference.topic_table import topic_table

        text = topic_table()
    sys.stdout.write(text)
