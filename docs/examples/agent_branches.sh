#!/usr/bin/env bash
# One task, several times, by an agent that is not changed: every model call is captured, and the branches are ranked by your check.
#   agent_branches.sh claude|codex ROLLOUT 'TASK' 'CHECK' [BRANCHES]
# CHECK is a shell command that passes or fails in the folder that the agent worked in. Each branch starts with a copy of the current
# folder, always under the same path: agents tell the model where they are, and branches with other prompts make no pairs.
# Needs `braid worker`, `braid gateway` and `braid proxy`; GATEWAY, PROXY and TOKEN say where they are, AGENT_FLAGS adds flags.
set -euo pipefail
agent=$1 rollout=$2 task=$3 check=$4 branches=${5:-4}
gateway=${GATEWAY:-http://127.0.0.1:8790}/v1/rollouts
proxy=${PROXY:-http://127.0.0.1:8791}/r/$rollout/b

start=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

post() { # URL JSON
  curl -sS --fail-with-body -o "$folder/answer" "$1" -H 'Content-Type: application/json' \
    ${TOKEN:+-H "Authorization: Bearer $TOKEN"} -d "$2" || { cat "$folder/answer" >&2; exit 1; }
}

run_agent() { # BRANCH
  case $agent in
    claude) ANTHROPIC_BASE_URL=$proxy/$1/anthropic claude -p "$task" --allowedTools Bash,Edit,Write ${AGENT_FLAGS:-} ;;
    codex) codex exec --skip-git-repo-check -c "openai_base_url=\"$proxy/$1/openai/v1\"" ${AGENT_FLAGS:-} "$task" ;;
    *) echo "agent_branches.sh: no agent has the name $agent; there are claude and codex" >&2; exit 2 ;;
  esac
}

opening=$(python3 -c 'import json, sys; print(json.dumps({"rollout_id": sys.argv[1], "task": sys.argv[2], "branches": int(sys.argv[3]),
  "required": ["check"]} | ({"repo_commit": sys.argv[4]} if sys.argv[4] else {})))' \
  "$rollout" "$task" "$branches" "$(git rev-parse HEAD 2>/dev/null || true)")
post "$gateway" "$opening"

for branch in $(seq 0 $((branches - 1))); do
  rm -rf "$folder/work" && cp -r "$start" "$folder/work" && cd "$folder/work"
  run_agent "$branch" </dev/null || echo "branch $branch: $agent ended with an error" >&2
  post "$proxy/$branch/end" '{}'
  if bash -c "$check"; then status=pass; else status=fail; fi
  post "$gateway/$rollout/branches/$branch/verdicts/check" "{\"name\": \"check\", \"status\": \"$status\"}"
  cd "$start"
done

until braid rollouts --status closed | grep -q "^$rollout "; do sleep 0.5; done
braid show "$rollout"
