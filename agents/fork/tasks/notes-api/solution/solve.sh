#!/bin/sh
cp -r "$(dirname "$0")"/files/. .
