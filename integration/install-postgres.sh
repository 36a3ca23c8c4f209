#!/usr/bin/env bash
# Installs a PostgreSQL server with its client tools by apt-get, unless there is one.
#
#   integration/install-postgres.sh            for the tests: version 15 where the distribution offers it
#   integration/install-postgres.sh --any      for the demo: whatever version is there already is good
#
# Where postgresql-15 is not offered, the distribution's own version is installed, and fetch-postgres.sh fetches a 15.
# The package must not make and start a database cluster of its own, so that is switched off before it is installed.
set -euo pipefail

# complete tells whether version $1 has the server and the client tools.
complete() {
	local dir=/usr/lib/postgresql/$1/bin
	[[ -x $dir/initdb && -x $dir/postgres && -x $dir/pg_receivewal && -x $dir/pgbench ]]
}

any_complete() {
	local dir
	for dir in /usr/lib/postgresql/*/; do
		if complete "$(basename "$dir")"; then return 0; fi
	done
	return 1
}

candidate() {
	apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [0-9]'
}

if complete 15 || { [[ ${1:-} == --any ]] && any_complete; }; then
	exit
fi
if ! command -v apt-get >/dev/null; then
	echo "install-postgres: install a PostgreSQL server with its client tools (this machine has no apt-get)" >&2
	exit 1
fi
if [[ $(id -u) -ne 0 ]]; then
	if any_complete; then exit; fi # fetch-postgres.sh adds a 15
	if command -v sudo >/dev/null; then
		echo "install-postgres: installing a PostgreSQL server, which needs root"
		exec sudo "$0" "$@"
	fi
	echo "install-postgres: as root, run: apt-get install postgresql" >&2
	exit 1
fi

export DEBIAN_FRONTEND=noninteractive
apt-get update -q </dev/null
package=postgresql
if candidate postgresql-15; then
	package=postgresql-15
elif any_complete; then
	exit
fi
apt-get install -qy --no-install-recommends postgresql-common </dev/null
conf=/etc/postgresql-common/createcluster.conf
if ! grep -qE '^[[:space:]]*create_main_cluster[[:space:]]*=' "$conf" 2>/dev/null; then
	echo 'create_main_cluster = false' >>"$conf"
fi
apt-get install -qy --no-install-recommends "$package" </dev/null
any_complete || {
	echo "install-postgres: package $package brought no complete server below /usr/lib/postgresql" >&2
	exit 1
}
