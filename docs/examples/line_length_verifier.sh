#!/bin/sh
# A verifier of one's own: no line of a Python file may be longer than 120 characters.
#   GATEWAY=http://127.0.0.1:8790 TOKEN=... line_length_verifier.sh ROLLOUT BRANCH SNAPSHOT.tar
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! tar -xf "$3" -C "$folder" 2>/dev/null; then
  status=unknown hint="the snapshot cannot be read"
else
  long=$(find "$folder" -name '*.py' -type f -exec awk 'length > 120' {} + | wc -l | tr -d ' ')
  if [ "$long" -eq 0 ]; then status=pass hint=""; else status=fail hint="$long lines are longer than 120 characters"; fi
fi

curl -sS --fail-with-body "$GATEWAY/v1/rollouts/$1/branches/$2/verdicts/check" \
  -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d "{\"name\": \"line-length\", \"status\": \"$status\", \"hint\": \"$hint\", \"produced_by\": \"line-length-verifier\"}"
