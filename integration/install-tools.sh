#!/usr/bin/env bash
# Installs by apt-get what `make test` needs beside Go, if it is missing: a C compiler (for the race detector), npm (to fetch
# PostgreSQL servers), promtool (to check alert rules), Barman and Patroni (consumers); with --bench, what the benchmarks compare with:
# zstd, xz, lz4, pgBackRest.
# Without root or apt-get it says what to install and fails.
set -euo pipefail

packages=()
if [[ ${1-} == --bench ]]; then
	command -v zstd >/dev/null || packages+=(zstd)
	command -v xz >/dev/null || packages+=(xz-utils)
	command -v lz4 >/dev/null || packages+=(lz4)
	command -v pgbackrest >/dev/null || packages+=(pgbackrest)
else
	command -v gcc >/dev/null || packages+=(gcc libc6-dev)
	command -v npm >/dev/null || packages+=(npm)
	command -v barman >/dev/null || packages+=(barman)
	command -v patroni >/dev/null || packages+=(patroni python3-pysyncobj)
	command -v promtool >/dev/null || packages+=(prometheus)
fi
if [[ ${#packages[@]} -eq 0 ]]; then exit; fi
if [[ $(id -u) -ne 0 ]] || ! command -v apt-get >/dev/null; then
	echo "install-tools: please install: ${packages[*]} (Debian, Ubuntu, as root: apt-get install ${packages[*]})" >&2
	exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null
apt-get install -qy --no-install-recommends "${packages[@]}" </dev/null
