"""Compares a directory with its manifest: the signature, every listed file, every unlisted file, every rollout.

`braid verify` asks this for every directory, whatever command wrote it. Each fault is reported at its path.
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from agents.evidence.canonical import CanonicalError, parse_evidence
from agents.evidence.signing import Json, signature_faults, signed_bytes
from agents.evidence.structure import printable, quoted
from streams.jobs.verify.findings import Finding
from streams.log.manifest import fault, strangers

Found = Callable[[Finding], None]
"""Called with each fault, and with each valid row."""


class Manifest:
    """A manifest as found: its content, and whether a trusted key signed it."""

    def __init__(self, path: Path, keys: Mapping[str, bytes], *, allow_unsigned: bool) -> None:
        self.path = path
        self.said: Json = {}
        self.faults: list[str] = []
        try:
            said = parse_evidence(path.read_bytes())
        except FileNotFoundError:
            self.faults = ["it is missing: nothing says what belongs to the directory"]
            return
        except CanonicalError as error:
            self.faults = [str(error)]
            return
        if not isinstance(said, dict):
            self.faults = ["it is not a JSON object"]
            return
        self.said = said
        if path.is_symlink():
            self.faults.append("it is a symbolic link, and not the file that was written")
        signature = said.get("signature")
        if signature is not None:
            self.faults += signature_faults(signature, signed_bytes(said), keys)
        elif not allow_unsigned:
            self.faults.append("it is not signed (--allow-unsigned accepts that)")

    @property
    def trusted(self) -> bool:
        """Whether it can be relied on."""
        return not self.faults

    @property
    def rollouts(self) -> list[str] | None:
        """The rollouts that it lists; None if it was made before manifests listed them."""
        ids = self.said.get("rollouts")
        return ids if isinstance(ids, list) and all(isinstance(each, str) for each in ids) else None


class DirectoryCheck:
    """One directory; `start` is the part of it that is checked."""

    def __init__(self, home: Path, found: Found, start: Path | None = None) -> None:
        self._home = home
        self._found = found
        self._start = start
        self._known: set[str] = set()

    def manifest(self, manifest: Manifest) -> None:
        """Report the faults of a manifest."""
        self._known.add(manifest.path.relative_to(self._home).as_posix())
        self.tell(str(manifest.path), [f"manifest: {why}" for why in manifest.faults])

    def files(self, stated: Mapping[str, Json]) -> None:
        """Report which listed files are missing or changed."""
        for name, entry in stated.items():
            self._known.add(name)
            path = self._home / name
            if self._start is None or path.is_relative_to(self._start):
                why = fault(path, entry)
                self.tell(str(path), [f"file: {why}"] if why else [])

    def know(self, *names: str) -> None:
        """Note files that belong to the directory, whatever is in them."""
        self._known.update(names)

    def others(self) -> list[Path]:
        """Report all unlisted files; return the directories inside that have a manifest of their own."""
        found = strangers(self._home, self._known, self._start)
        for path, why in found.named:
            self.tell(str(path), [f"file: {why}"])
        return found.nested

    def rollouts(self, manifest: Manifest, present: Mapping[str, str]) -> None:
        """Report which listed rollouts are missing, and which present ones (by id, with their position) are not listed."""
        if manifest.rollouts is None:
            return
        for rollout_id in sorted(set(manifest.rollouts) - present.keys()):
            why = f"rollout: {quoted(rollout_id)} is listed here, and its evidence is nowhere in the directory"
            self.tell(str(manifest.path), [why], rollout_id)
        for rollout_id in sorted(present.keys() - set(manifest.rollouts)):
            why = f"rollout: the manifest does not list {quoted(rollout_id)}"
            self.tell(present[rollout_id], [why], rollout_id)

    def tell(self, position: str, reasons: Iterable[str], rollout_id: str | None = None) -> None:
        """Report a fault, if there are reasons."""
        if reasons := tuple(reasons):
            more = {} if rollout_id is None else {"rollout_id": printable(rollout_id)}
            self._found(Finding(position, None, ok=False, reasons=reasons, more=more))
