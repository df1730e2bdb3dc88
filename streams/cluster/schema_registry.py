"""The schema registry, by the Confluent API (Apicurio, Karapace, Confluent): register, look up, check.

An unreachable registry differs from a negative answer: it raises `RegistryUnreachableError` and the caller retries,
while an unknown id is None.
"""

import json
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from schemas.errors import BraidError, SchemaError

if TYPE_CHECKING:
    import httpx

TIMEOUT_S = 10.0


class RegistryUnreachableError(BraidError):
    """The registry did not answer, or answered that it is in trouble."""


class Registry:
    """A client of one registry."""

    def __init__(self, url: str, *, auth: tuple[str, str] | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.url = url.rstrip("/")
        self._auth = auth
        self._tls = tls
        self._client: httpx.AsyncClient | None = None

    def _http(self) -> "httpx.AsyncClient":
        """Made at the first request: a reader that knows all schemas begins sooner."""
        import httpx

        if self._client is None:
            verify = self._tls or self.url.startswith("https:")  # without TLS no certificates are loaded
            self._client = httpx.AsyncClient(timeout=TIMEOUT_S, auth=self._auth, verify=verify)
        return self._client

    async def close(self) -> None:
        """Close connections."""
        if self._client is not None:
            await self._client.aclose()

    async def register(self, subject: str, schema: dict[str, Any]) -> int:
        """The id of a schema under a subject; a new version when it is new. Raises SchemaError when it is not compatible."""
        answer = await self._settled(
            "POST", f"/subjects/{quote(subject, safe='')}/versions", {"schema": json.dumps(schema)}
        )
        if answer.status_code in (409, 422):
            raise SchemaError(f"{self.url}: {subject} refuses the schema ({answer.status_code}): {_reason(answer)}")
        return int(self._accepted(answer)["id"])

    async def schema(self, schema_id: int) -> dict[str, Any] | None:
        """The schema with this id; None if there is none."""
        answer = await self._ask("GET", f"/schemas/ids/{schema_id}")
        if answer.status_code == 404:
            return None
        schema = json.loads(self._accepted(answer)["schema"])
        return schema if isinstance(schema, dict) else None

    async def require_backward(self, subject: str) -> None:
        """Make the registry refuse a version that cannot read every earlier one."""
        self._accepted(
            await self._settled("PUT", f"/config/{quote(subject, safe='')}", {"compatibility": "BACKWARD_TRANSITIVE"})
        )

    async def has(self, subject: str) -> bool:
        """Whether a subject has a schema. Each is asked for by name: registries cut long lists of subjects."""
        answer = await self._ask("GET", f"/subjects/{quote(subject, safe='')}/versions")
        if answer.status_code not in (200, 404):
            raise RegistryUnreachableError(f"{self.url}: {answer.status_code} {_reason(answer)}")
        return answer.status_code == 200

    async def _settled(self, method: str, path: str, body: object) -> "httpx.Response":
        """The answer to a change. A conflict may come from another process that does the same at this moment, so the
        request is retried once.
        """
        answer = await self._ask(method, path, body)
        return await self._ask(method, path, body) if answer.status_code == 409 else answer

    async def _ask(self, method: str, path: str, body: object = None) -> "httpx.Response":
        import httpx

        try:
            answer = await self._http().request(method, self.url + path, json=body)
        except httpx.HTTPError as error:
            raise RegistryUnreachableError(
                f"schema registry {self.url} does not answer ({error or type(error).__name__}); is it running?"
            ) from error
        if answer.status_code in (401, 403):
            raise RegistryUnreachableError(
                f"schema registry {self.url} refuses us ({answer.status_code}); check security.registry_username and its password"
            )
        if answer.status_code >= 500:
            raise RegistryUnreachableError(
                f"schema registry {self.url} is in trouble ({answer.status_code}): {_reason(answer)}"
            )
        return answer

    def _accepted(self, answer: "httpx.Response") -> dict[str, Any]:
        if answer.status_code >= 400:
            raise SchemaError(f"{self.url}: {answer.request.url.path}: {answer.status_code} {_reason(answer)}")
        found = answer.json()
        return found if isinstance(found, dict) else {}


def _reason(answer: "httpx.Response") -> str:
    try:
        return str(answer.json().get("message", answer.text))[:500]
    except ValueError:
        return answer.text[:500]
