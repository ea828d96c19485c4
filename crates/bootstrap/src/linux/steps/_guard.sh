#!/bin/bash
# Makes this server a node of the cluster. Safe to run again at any time. Holds a secret: keep it readable by root only.
{ set +xv; } 2>/dev/null
if [ -z "${BASH_VERSION:-}" ]; then
  if [ -f "$0" ] && command -v bash >/dev/null 2>&1; then
    exec bash "$0" "$@"
  fi
  echo "this program needs bash and was given to another shell; run it as: bash $0" >&2
  exit 64
fi
set +o posix -euo pipefail

