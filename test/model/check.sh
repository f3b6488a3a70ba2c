#!/bin/sh
# Checks the protocol exhaustively, and that each variant with a known fault fails.
# Needs spin and a C compiler. Usage: check.sh [--deep]
set -eu
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp holdfast.pml "$work"
cd "$work"
failed=0

# verify NAME FLAGS...: prints "errors states" of a full search.
verify() {
  rm -f pan pan.*
  spin -a "$@" holdfast.pml >/dev/null
  cc -O2 -w -DSAFETY -DVECTORSZ=2048 -DMEMLIM=6000 -o pan pan.c
  ./pan -m200000 -n >out.txt 2>&1 || true
  errors=$(sed -n 's/.*errors: \([0-9]*\).*/\1/p' out.txt)
  states=$(sed -n 's/ *\([0-9.e+]*\) states, stored.*/\1/p' out.txt)
  if grep -q 'search depth too small\|out of memory' out.txt; then errors='incomplete'; fi
}

hold() {
  budget=$*
  verify "$@"
  if [ "$errors" = 0 ]; then echo "ok: the protocol holds ($states states) $budget"
  else echo "FAILED: the protocol: $errors errors $budget"; cat out.txt; failed=1; fi
}

hold
hold -DMAX_ATTEMPTS=3 -DEVENTS=1 -DPAUSES=2
if [ "${1:-}" = --deep ]; then hold -DEVENTS=2 -DCRASHES=2; fi
for fault in NO_EPOCH_CHECK FENCE_WITHOUT_LOCK ATTEMPTS_AS_EPOCH STALE_SWEEP CANCEL_LOOKS_ONCE NO_UNPARK NO_COMPARE_AND_SET; do
  verify "-D$fault"
  if [ "$errors" != 0 ] && [ "$errors" != incomplete ]; then echo "ok: $fault is found"
  else echo "FAILED: $fault is not found"; failed=1; fi
done
exit $failed
