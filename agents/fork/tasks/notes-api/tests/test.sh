#!/bin/sh
# Runs where the work is not: `work COMMAND...` runs a command on it, which sees neither this folder nor the report.
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
logs="${LOGS_DIR:-/logs/verifier}"
cd "${TEST_DIR:-/tests}" || exit 2
python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=. --junitxml="$logs/junit.xml" .
status=$?
echo $((status == 0)) > "$logs/reward.txt"
exit $status
