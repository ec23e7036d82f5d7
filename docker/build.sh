#!/usr/bin/env bash
# Builds the image from a static Linux binary with whatever builder there is. Usage: build.sh PATH-TO-DSHPROXY [TAG]
set -euo pipefail
binary=$1 tag=${2:-dshproxy:latest}
here=$(cd "$(dirname "$0")" && pwd)
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp "$binary" "$context/dshproxy"
cp "$here/proxy.yaml" "$here/rules.yaml" "$context/"
for bundle in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem; do
  [ -r "$bundle" ] && cp -L "$bundle" "$context/ca-certificates.crt" && break
done
[ -s "$context/ca-certificates.crt" ] || { echo "build.sh: no CA bundle on this machine (install ca-certificates)" >&2; exit 1; }
chmod -R go+rX "$context"
if docker info >/dev/null 2>&1; then
  docker build -q -t "$tag" -f "$here/Dockerfile" "$context"
elif command -v buildah >/dev/null; then
  # docker format, because the OCI format has no HEALTHCHECK
  buildah bud -q --format docker --isolation chroot -t "$tag" -f "$here/Dockerfile" "$context"
elif command -v podman >/dev/null; then
  podman build -q --format docker -t "$tag" -f "$here/Dockerfile" "$context"
else
  echo "build.sh: needs docker, buildah or podman" >&2
  exit 1
fi
