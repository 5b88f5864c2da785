#!/bin/sh
# Puts the files of the image into the folder $1. It runs in a built project without development dependencies, on Debian 13.
# There is no distribution in the image: the application, Node, the libraries that both load, and a user.
set -eu
image=$1

mkdir -p "$image/app/dist" "$image/usr/local/bin" "$image/etc" "$image/var/lib/dpkg/status.d"
mkdir -p -m 1777 "$image/tmp"
cp -R package.json sql node_modules "$image/app/"
cp -R dist/src dist/uws dist/web "$image/app/dist/"
rm -f "$image/app/sql/README.md"

# The HTTP server has a binary for each platform and version of Node: one is needed. Types and source maps are for developers.
modules=$image/app/node_modules
binary=uws_linux_$(node -p 'process.arch')_$(node -p 'process.versions.modules').node
find "$image/app/dist/uws" -name 'uws_*.node' ! -name "$binary" -delete
find "$modules" -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' \) -delete
rm -rf "$modules/@embedded-postgres" "$modules/.bin"

cp "$(command -v node)" "$image/usr/local/bin/node"
# What ldd says is looked at as a whole: in a pipe, neither its failure nor a library that it misses would end the script.
status=0
libraries=$(find "$image" -type f \( -name '*.node' -o -path "$image/usr/local/bin/node" \) -exec ldd {} + 2>&1) || status=$?
missing=$(echo "$libraries" | grep 'not found' | sort -u) || true
if [ -n "$missing" ]; then
  echo "a library is missing: $missing" >&2
  exit 1
fi
if [ "$status" -ne 0 ]; then
  echo "the libraries could not be listed: $libraries" >&2
  exit 1
fi
echo "$libraries" | grep -o '/[^ :]*\.so[.0-9]*' | sort -u |
  while read -r library; do
    install -D -m 755 "$library" "$image$library"
  done

echo 'node:x:1000:1000::/tmp:/sbin/nologin' > "$image/etc/passwd"
echo 'node:x:1000:' > "$image/etc/group"
echo 'hosts: files dns' > "$image/etc/nsswitch.conf"
# Scanners read there which versions of packages the libraries are from.
for package in libc6 libgcc-s1 libstdc++6; do
  dpkg-query --status "$package" > "$image/var/lib/dpkg/status.d/$package"
done
