#!/usr/bin/env bash
# A verifier that needs nothing but curl and tar: the check no_tabs passes where no file that a branch left has a tab in it.
#   GATEWAY=http://127.0.0.1:8790 TOKEN=... no_tabs_verifier.sh      gives every branch that waits for it its verdict
# It asks the read side for work (GET /v1/work), takes the files (GET /v1/snapshots), and posts what it found. TOKEN is one of the
# role verifier; without tokens, leave it out.
set -euo pipefail

gateway=${GATEWAY:-http://127.0.0.1:8790}/v1
call() { curl -sS --fail-with-body ${TOKEN:+-H "Authorization: Bearer $TOKEN"} "$@"; }

call "$gateway/work?needs=no_tabs&format=lines" | while IFS=$'\t' read -r branch digest; do
  files=$(mktemp -d)
  if [ "$digest" = - ] || ! call "$gateway/snapshots/$digest" | tar -x -C "$files"; then status=unknown
  elif grep -rq $'\t' "$files"; then status=fail
  else status=pass; fi
  rm -rf "$files"
  call "$gateway/$branch/verdicts/check" -H 'Content-Type: application/json' -d '{"name": "no_tabs", "status": "'$status'"}'
done
