#!/bin/bash
# Puts a Consul server binary into a cache folder, for the tests, when the machine has none.
# Prints the path of the binary. Debian bullseye is the last release with the package: it is taken
# from the mirror that this machine's own apt uses, signature checked, without touching apt's state.
set -euo pipefail

cache="${ZCRAWL_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/zcrawl-tests}"
binary="$cache/consul/usr/bin/consul"

if command -v consul >/dev/null; then
  command -v consul
  exit
fi
if [ -x "$binary" ]; then
  echo "$binary"
  exit
fi
command -v apt-get >/dev/null && command -v dpkg >/dev/null || {
  echo "install_consul: no consul on PATH and no apt-get to get one" >&2
  exit 1
}

# The first Debian source: deb822 files have URIs: lines, one-line files have `deb [options] URI`.
# Mirrors that hold security updates or third parties' packages have no suite of that name.
uri=$(
  {
    cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '$1 == "URIs:" { print $2 }' || true
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
      sed -nE 's/^deb +(\[[^]]*\] +)?([^ ]+) .*/\2/p' || true
  } | grep -E '/debian/?$' | head -n 1
)
[ -n "$uri" ] || {
  echo "install_consul: apt has no Debian source to copy; please install consul" >&2
  exit 1
}

mkdir -p "$cache"
work=$(mktemp -d "$cache/install.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/lists/partial "$work"/archives/partial "$work/tree"
chmod -R a+rX "$work" # apt fetches as a user of its own where it can
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
signed=""
[ -e "$keyring" ] && signed="[signed-by=$keyring]"
echo "deb $signed $uri bullseye main" >"$work/sources.list"
apt() {
  apt-get -qq -o "Dir::Etc::sourcelist=$work/sources.list" -o Dir::Etc::sourceparts=- \
    -o "Dir::State::lists=$work/lists" -o "Dir::Cache=$work" -o APT::Sandbox::User=root "$@" >&2
}
echo "install_consul: fetching Debian's consul into $cache" >&2
apt update
(cd "$work" && apt download consul)
dpkg -x "$work"/consul_*.deb "$work/tree"
# Moved in one step: two test runs may do this at the same time.
mv -T "$work/tree" "$cache/consul" 2>/dev/null || [ -x "$binary" ]
echo "$binary"
