#!/bin/sh
# Runs one of the npm scripts with everything it needs: installs what is missing, then becomes the
# pinned Node. Because it execs, a signal sent to npm, to the group, or to both means the same.
#   run.sh dev|bff|runner|migrate|audit|test|verify|bench|chaos|nightly [arguments]
set -eu
cd "$(dirname "$0")/.."
name=${1:?name of a script}
shift

say() { printf 'holdfast: %s\n' "$1" >&2; }

# What a signal before Node has taken over means: there is nothing to drain yet, so a service ends as
# well as can be.
interrupted() {
  trap '' INT TERM
  if [ -n "$set_up_pid" ]; then
    kill -TERM "$set_up_pid" 2>/dev/null || true
    wait "$set_up_pid" || true
  fi
  case $name in dev | bff | runner) exit 0 ;; *) exit 143 ;; esac
}

set_up_pid=
trap interrupted INT TERM

set_up() {
  wanted=$1
  # With nothing but sh and cksum a later start knows in milliseconds that all is installed already.
  now=$(sh scripts/stamp.sh) || true
  if [ -x node_modules/node/bin/node ]; then
    read -r done_stamp 2>/dev/null <node_modules/.holdfast-set-up || done_stamp=
    case $done_stamp in
      "all $now") return 0 ;;
      "start $now") if [ "$wanted" = start ]; then return 0; fi ;;
    esac
  fi
  if ! command -v node >/dev/null; then say 'Node 20 or newer is needed, and no node is on the PATH'; exit 1; fi
  if ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 20 ? 1 : 0)'; then
    say "Node 20 or newer is needed, this is $(node --version)"
    exit 1
  fi
  node scripts/set-up.mjs "$wanted" "$now" </dev/null &
  set_up_pid=$!
  wait "$set_up_pid" || exit 1
  set_up_pid=
}

node=node_modules/node/bin/node
case $name in
  dev | bff | runner | migrate | audit)
    set_up start
    exec "$node" --conditions=holdfast-source "services/$name/src/main.ts" "$@"
    ;;
  test)
    set_up all
    exec "$node" node_modules/vitest/vitest.mjs run "$@"
    ;;
  verify)
    set_up all
    PATH=$PWD/node_modules/.bin:$PATH
    tsc -b
    biome check .
    oxlint
    knip
    exec "$node" node_modules/vitest/vitest.mjs run "$@"
    ;;
  chaos)
    set_up all
    exec "$node" --conditions=holdfast-source test/campaign/main.ts "$@"
    ;;
  nightly)
    set_up all
    exec "$node" test/nightly/run.ts "$@"
    ;;
  bench)
    set_up all
    exec "$node" --conditions=holdfast-source test/bench/main.ts "$@"
    ;;
  *)
    say "there is no script named $name"
    exit 2
    ;;
esac
