#!/bin/sh
# One line that changes whenever the dependencies may have: set-up notes it, the next start compares it.
cd "$(dirname "$0")/.."
cat pnpm-lock.yaml pnpm-workspace.yaml package.json packages/*/package.json services/*/package.json \
  test/package.json examples/*/package.json 2>/dev/null | cksum
