#!/usr/bin/env bash
# Builds the S3 server that the tests of the archive run: versitygw, a gateway to a directory, at a pinned version.
#
#   integration/fetch-s3server.sh          build it if it is missing
#   integration/fetch-s3server.sh --path   print where the program is or will be and stop
#
# It goes below the directory
#   $WALPROXY_S3_CACHE             if set;
#   /var/cache/walproxy/s3server   for root, shared by all checkouts;
#   <checkout>/.cache/s3server     for everybody else (git-ignored).
# integration/s3server looks in the same place. It may run any number of times, also at the same time (a lock file).
set -euo pipefail

version=v1.8.0

cache=${WALPROXY_S3_CACHE:-}
if [[ -z $cache ]]; then
	if [[ $(id -u) -eq 0 ]]; then
		cache=/var/cache/walproxy/s3server
	else
		cache=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.cache/s3server
	fi
fi
program=$cache/$version/versitygw
if [[ ${1:-} == --path ]]; then
	echo "$program"
	exit
fi
umask 022
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [[ -x $program ]]; then exit; fi
echo "building the S3 server versitygw $version"
work=$(mktemp -d "$cache/.build-XXXXXX")
trap 'rm -rf "$work"' EXIT
# Outside of this module: its go.mod knows nothing of the server.
(cd "$work" && GOBIN=$work GOFLAGS='' go install -trimpath -ldflags='-s -w' "github.com/versity/versitygw/cmd/versitygw@$version")
"$work/versitygw" --version >/dev/null
mkdir -p "$cache/$version"
mv "$work/versitygw" "$program"
