#!/bin/sh
# Run in the workspace. Harbor puts this folder at /tests; elsewhere TEST_DIR and LOGS_DIR say where things are.
# pytest starts in the tests' own folder and reads no configuration, so nothing in the workspace can stand in for it.
export WORKSPACE="$PWD" PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
logs="${LOGS_DIR:-/logs/verifier}"
cd "${TEST_DIR:-/tests}" || exit 2
python -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=. --junitxml="$logs/junit.xml" .
status=$?
echo $((status == 0)) > "$logs/reward.txt"
exit $status
