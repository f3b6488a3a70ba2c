/*
 * The protocol of a run, for exhaustive checking: create, claim, renew, append, finish, cancel, hand-back, takeover,
 * claim for ending, sweep and parking. Two runners, two turns of one conversation, one caller who cancels; runners
 * pause for longer than their lease, crash, and lose replies of what they wrote.
 *
 * A step in `atomic` is one database transaction. `lease` is what the database's clock says of the lease; when it
 * passes is not predictable, so it may pass at any moment (within the budgets that keep the model finite).
 *
 * Checked: epochs never fall along a log and no event is lost or doubled (I1, I5); one terminal event, the last (I6, I11);
 * at most one running turn, in order (I19); a cancel that was acknowledged is durable; and, since an unfinished run that
 * nobody can advance is an invalid end state, every run ends (I4).
 *
 * Each -D below builds in one known fault, and the check must fail:
 *   NO_EPOCH_CHECK  FENCE_WITHOUT_LOCK  ATTEMPTS_AS_EPOCH  STALE_SWEEP  CANCEL_LOOKS_ONCE  NO_UNPARK  NO_COMPARE_AND_SET
 */
#define RUNS 2
#define RUNNERS 2
#define NOBODY 9
#ifndef MAX_ATTEMPTS
#define MAX_ATTEMPTS 2
#endif
#ifndef EVENTS
#define EVENTS 1
#endif
#ifndef PAUSES
#define PAUSES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOST_REPLIES
#define LOST_REPLIES 1
#endif
#ifndef HAND_BACKS
#define HAND_BACKS 1
#endif

mtype = { absent, queued, running, succeeded, failed, stopped };

typedef Run {
  mtype state = absent;
  byte epoch;
  byte used;         /* attempts_used */
  byte seq;
  bool lease;
  bool cancel;
  bool parked;
  byte terminals;    /* ghost: terminal events written */
  byte heldBy = NOBODY; /* ghost: who was given the run last */
  byte logEpoch;     /* ghost: epoch of the last event */
  byte logEvents;    /* ghost: events of that epoch */
};

Run row[RUNS];
byte pauses = PAUSES, crashes = CRASHES, lostReplies = LOST_REPLIES, handBacks = HAND_BACKS;
bool acknowledged, endedBeforeCancel;

#define terminal(s) (s == succeeded || s == failed || s == stopped)
#define ALL_ENDED (terminal(row[0].state) && terminal(row[1].state))

#ifdef ATTEMPTS_AS_EPOCH
#define TOKEN(r) row[r].used
#else
#define TOKEN(r) row[r].epoch
#endif

#ifdef NO_EPOCH_CHECK
#define holds(r, e) (row[r].state == running && row[r].lease)
#else
#define holds(r, e) (row[r].state == running && row[r].lease && TOKEN(r) == e)
#endif

#ifdef NO_COMPARE_AND_SET
#define expected(r, b) true
#else
#define expected(r, b) (row[r].seq == b)
#endif

inline endRun(r, how) {
  assert(!terminal(row[r].state));
  row[r].terminals++;
  assert(row[r].terminals == 1);
  row[r].seq++;
  row[r].state = how;
  row[r].lease = false;
#ifndef NO_UNPARK
  if
  :: r == 0 && row[1].state == queued && row[1].parked -> row[1].parked = false
  :: else
  fi
#endif
}

/* What the log must always be: written by attempts in order, each event of an attempt once. */
inline writeEvent(r, e, nth) {
  assert(!terminal(row[r].state));
  assert(e >= row[r].logEpoch);
  if
  :: e > row[r].logEpoch -> assert(nth == 1); row[r].logEpoch = e; row[r].logEvents = 1
  :: else -> row[r].logEvents++; assert(row[r].logEvents == nth)
  fi;
  row[r].seq++
}

inline take(r) {
  row[r].epoch++;
  row[r].lease = true;
  row[r].heldBy = _pid;
  assert(r == 0 || terminal(row[0].state));
  have = true; mine = r; base = row[r].seq; real = row[r].epoch; said = 0
}

inline cancelFirst() {
#ifdef CANCEL_LOOKS_ONCE
  if
  :: atomic { row[0].state == queued -> skip };
     atomic {
       if
       :: row[0].state == queued -> row[0].cancel = true; endRun(0, stopped)
       :: else
       fi
     }
  :: atomic { row[0].state == running -> row[0].cancel = true }
  :: atomic { terminal(row[0].state) -> endedBeforeCancel = true }
  fi;
#else
  atomic {
    if
    :: terminal(row[0].state) -> endedBeforeCancel = true
    :: row[0].state == queued -> row[0].cancel = true; endRun(0, stopped)
    :: row[0].state == running -> row[0].cancel = true
    fi
  };
#endif
  acknowledged = true;
  assert(row[0].cancel || endedBeforeCancel)
}

active [RUNNERS] proctype Runner() {
  bool have, ending, unsure, unsureEnd, unsureBack, checked;
  byte mine, token, real, base, said;
  do
  :: atomic { !have && ALL_ENDED -> break }

  /* claim: state, due time and cancel mark stand in the UPDATE itself */
  :: atomic { !have && row[0].state == queued && !row[0].parked && !row[0].cancel && row[0].used < MAX_ATTEMPTS ->
       row[0].state = running; row[0].used++; take(0); token = TOKEN(0); ending = false }
  :: atomic { !have && row[1].state == queued && !row[1].parked && !row[1].cancel && row[1].used < MAX_ATTEMPTS ->
       row[1].state = running; row[1].used++; take(1); token = TOKEN(1); ending = false }

  /* takeover of an expired lease */
  :: atomic { !have && row[0].state == running && !row[0].lease && !row[0].cancel && row[0].used < MAX_ATTEMPTS ->
       row[0].used++; take(0); token = TOKEN(0); ending = false }
  :: atomic { !have && row[1].state == running && !row[1].lease && !row[1].cancel && row[1].used < MAX_ATTEMPTS ->
       row[1].used++; take(1); token = TOKEN(1); ending = false }

  /* claim for ending: no attempt is spent */
  :: atomic { !have && row[0].state == running && !row[0].lease && (row[0].cancel || row[0].used >= MAX_ATTEMPTS) ->
       take(0); token = TOKEN(0); ending = true }
  :: atomic { !have && row[1].state == running && !row[1].lease && (row[1].cancel || row[1].used >= MAX_ATTEMPTS) ->
       take(1); token = TOKEN(1); ending = true }

  /* sweep of queued runs that nobody may claim */
  :: atomic { !have && row[0].state == queued && row[0].cancel -> endRun(0, stopped) }
  :: atomic { !have && row[1].state == queued && row[1].cancel -> endRun(1, stopped) }

  /* append */
#ifdef FENCE_WITHOUT_LOCK
  :: atomic { have && !ending && !unsure && !unsureEnd && !unsureBack && !checked && said < EVENTS ->
       if
       :: holds(mine, token) && expected(mine, base) -> checked = true
       :: else -> have = false
       fi }
  :: atomic { have && checked -> checked = false; writeEvent(mine, real, said + 1); said++; base++ }
#else
  :: atomic { have && !ending && !unsure && !unsureEnd && !unsureBack && said < EVENTS ->
       if
       :: holds(mine, token) && expected(mine, base) ->
          writeEvent(mine, real, said + 1);
          if
          :: said++; base++
          :: lostReplies > 0 -> lostReplies--; unsure = true
          fi
       :: else -> have = false
       fi }
#endif
  /* a lost reply is decided by a re-read, never by repeating blindly */
  :: atomic { have && unsure ->
       unsure = false;
#ifndef NO_COMPARE_AND_SET
       if
       :: TOKEN(mine) == token && row[mine].seq == base + 1 -> said++; base++
       :: else ->
          if
          :: holds(mine, token) && row[mine].seq == base -> skip
          :: else -> have = false
          fi
       fi
#endif
     }

  /* finish: asks under the lock whether a cancel is pending */
  :: atomic { have && !unsure && !unsureEnd && !unsureBack && !checked && (ending || said == EVENTS) ->
       if
       :: holds(mine, token) && expected(mine, base) ->
          if
          :: row[mine].cancel -> endRun(mine, stopped)
          :: else ->
             if
             :: ending -> endRun(mine, failed)
             :: else -> endRun(mine, succeeded)
             fi
          fi;
          if
          :: have = false
          :: lostReplies > 0 -> lostReplies--; unsureEnd = true
          fi
       :: else -> have = false
       fi }
  :: atomic { have && unsureEnd ->
       unsureEnd = false;
       if
       :: holds(mine, token) -> skip
       :: else -> have = false
       fi }

  /* hand-back: a cancel that races it wins */
  :: atomic { have && !ending && !unsure && !unsureEnd && !unsureBack && !checked && handBacks > 0 ->
       handBacks--;
       if
       :: holds(mine, token) && expected(mine, base) && !row[mine].cancel ->
          row[mine].state = queued; row[mine].lease = false; row[mine].used--;
          if
          :: have = false
          :: lostReplies > 0 -> lostReplies--; unsureBack = true
          fi
       :: holds(mine, token) && expected(mine, base) && row[mine].cancel -> ending = true
       :: else -> have = false
       fi }
  :: atomic { have && unsureBack ->
       unsureBack = false;
       if
       :: holds(mine, token) -> base = row[mine].seq
       :: else -> have = false
       fi }

  /* crash: all that the process knew is gone; it starts again */
  :: atomic { have && crashes > 0 ->
       crashes--;
       if
       :: row[mine].heldBy == _pid -> row[mine].heldBy = NOBODY
       :: else
       fi;
       have = false; unsure = false; unsureEnd = false; unsureBack = false; checked = false }

  /* the owner stopped by itself, its right being gone */
  :: atomic { !have && row[0].heldBy == _pid -> row[0].heldBy = NOBODY }
  :: atomic { !have && row[1].heldBy == _pid -> row[1].heldBy = NOBODY }
  od
}

/* The database's clock: the lease of an owner that is gone passes; that of one that lives, when it pauses. */
active proctype Clock() {
  do
  :: atomic { ALL_ENDED -> break }
  :: atomic { row[0].state == running && row[0].lease && row[0].heldBy == NOBODY -> row[0].lease = false }
  :: atomic { row[1].state == running && row[1].lease && row[1].heldBy == NOBODY -> row[1].lease = false }
  :: atomic { row[0].state == running && row[0].lease && pauses > 0 -> pauses--; row[0].lease = false }
  :: atomic { row[1].state == running && row[1].lease && pauses > 0 -> pauses--; row[1].lease = false }
  od
}

/* The client: two turns, the second parked while the first is unfinished; and a cancel of the first at any moment. */
active proctype Client() {
  row[0].state = queued;
  if
  :: skip
  :: cancelFirst()
  fi;
  atomic {
    row[1].state = queued;
    row[1].parked = !terminal(row[0].state)
  };
  if
  :: skip
  :: cancelFirst()
  fi
}

#ifdef STALE_SWEEP
/* Ends what it saw expired, by id alone. */
active proctype Sweep() {
  byte seen;
end_sweep:
  atomic {
    if
    :: row[0].state == running && !row[0].lease -> seen = 0
    :: row[1].state == running && !row[1].lease -> seen = 1
    fi
  };
  atomic { endRun(seen, failed) }
}
#endif

/* What must hold in every state. */
active proctype Monitor() {
end_monitor:
  atomic {
    (row[0].state == running && row[1].state == running) -> assert(false)
  }
}
