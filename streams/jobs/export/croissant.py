"""croissant.json: the dataset card for machines, in the vocabulary of Croissant 1.0 with its fields on responsible AI.

One FileObject for each file, with the digest that the manifest states, and one RecordSet for each. Free-form columns are text.
A function of the state of the export alone: the same export gives the same bytes.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from agents.formats.shape import Column, FileKind, Format, ListOf
from streams.jobs.export.shards import Shard
from streams.log.durable_files import write_whole

CROISSANT = "croissant.json"
VERSION = "1.0.0"
"""Version of the dataset; its contents are identified by digests."""
ENCODINGS: Mapping[str, str] = {
    "jsonl": "application/jsonlines", "parquet": "application/x-parquet", "json": "application/json"
}  # fmt: skip
TYPES: Mapping[str, str] = {
    "text": "sc:Text", "whole": "sc:Integer", "real": "sc:Float", "truth": "sc:Boolean", "json": "sc:Text"
}  # fmt: skip

CONTEXT: Mapping[str, Any] = {
    "@language": "en", "@vocab": "https://schema.org/", "citeAs": "cr:citeAs", "column": "cr:column",
    "conformsTo": "dct:conformsTo", "cr": "http://mlcommons.org/croissant/", "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"}, "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/", "examples": {"@id": "cr:examples", "@type": "@json"}, "extract": "cr:extract",
    "field": "cr:field", "fileProperty": "cr:fileProperty", "fileObject": "cr:fileObject", "fileSet": "cr:fileSet",
    "format": "cr:format", "includes": "cr:includes", "isLiveDataset": "cr:isLiveDataset", "jsonPath": "cr:jsonPath",
    "key": "cr:key", "md5": "cr:md5", "parentField": "cr:parentField", "path": "cr:path", "recordSet": "cr:recordSet",
    "references": "cr:references", "regex": "cr:regex", "repeated": "cr:repeated", "replace": "cr:replace",
    "sc": "https://schema.org/", "separator": "cr:separator", "source": "cr:source", "subField": "cr:subField",
    "transform": "cr:transform",
}  # fmt: skip


def write_croissant(folder: Path, form: Format, kind: FileKind, shards: list[Shard], *, redacted: bool) -> None:
    """Write the card."""
    write_whole(
        folder / CROISSANT,
        orjson.dumps(_card(form, kind, shards, redacted=redacted), option=orjson.OPT_INDENT_2) + b"\n",
    )


def _card(form: Format, kind: FileKind, shards: list[Shard], *, redacted: bool) -> dict[str, Any]:
    removed = (
        "Secrets were removed by redaction rules." if redacted else "Redaction was switched off: rows may hold secrets."
    )
    return {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": form.name,
        "description": f"{form.about}. Made from ranked agent rollouts; README.md tells the counts, manifest.json the provenance.",
        "conformsTo": ["http://mlcommons.org/croissant/1.0", "http://mlcommons.org/croissant/RAI/1.0"],
        "version": VERSION,
        "url": "README.md",
        "rai:dataCollection": "Runs of agents, recorded as events; outcomes are verdicts of verifiers, never the agent's own word.",
        "rai:dataCollectionType": "Software Collection",
        "rai:dataAnnotationProtocol": "Verdicts of tests, pages and checks; where a judge compared branches, in both orders.",
        "rai:dataPreprocessingProtocol": removed,
        "rai:personalSensitiveInformation": removed,
        "rai:dataLimitations": "A row is as good as the verifiers of its rollout: `braid audit verifiers` says how good they are.",
        "distribution": [_file(shard, kind) for shard in shards],
        "recordSet": [_records(shard, form) for shard in shards],
    }


def _file(shard: Shard, kind: FileKind) -> dict[str, Any]:
    ending = shard.name.rpartition(".")[2]
    return {
        "@type": "cr:FileObject", "@id": shard.name, "name": _plain(shard.name), "contentUrl": shard.name,
        "contentSize": f"{shard.bytes} B", "encodingFormat": ENCODINGS.get(ending, ENCODINGS[kind]), "sha256": shard.sha256,
    }  # fmt: skip


def _records(shard: Shard, form: Format) -> dict[str, Any]:
    columns = form.columns.get(shard.part, {})
    name = _plain(shard.name.rpartition(".")[0])
    return {
        "@type": "cr:RecordSet", "@id": f"rows-{name}", "name": f"rows-{name}", "description": f"{shard.rows} rows, split {shard.split}",
        "field": list(_fields(columns, shard, f"rows-{name}")),
    }  # fmt: skip


def _fields(columns: Mapping[str, Column], shard: Shard, records: str) -> Iterator[dict[str, Any]]:
    for name, column in columns.items():
        inner = column.of if isinstance(column, ListOf) else column
        known = isinstance(inner, str)
        yield {
            "@type": "cr:Field", "@id": f"{records}/{name}", "name": name,
            "description": name if known and inner != "json" else f"{name}, as JSON",
            "dataType": TYPES[inner] if isinstance(inner, str) else "sc:Text",
            **({"repeated": True} if isinstance(column, ListOf) and known else {}),
            "source": {"fileObject": {"@id": shard.name}, "extract": {"column": name}},
        }  # fmt: skip


def _plain(name: str) -> str:
    """A name of the characters that names may have."""
    return "".join(each if each.isascii() and (each.isalnum() or each in "-_.") else "_" for each in name)
