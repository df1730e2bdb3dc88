#!/bin/sh
export PYTHONPATH="$PWD"
cd "$TEST_DIR" || exit 2
python3 -m pytest -q -p no:cacheprovider -c /dev/null --rootdir=. --junitxml="$LOGS_DIR/junit.xml" .
status=$?
exit $status
