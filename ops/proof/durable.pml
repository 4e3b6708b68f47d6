/*
 * Claim, steps, commit, release, reap, reconcile, resend and a store that goes back in time.
 *
 * W workers with one process each do T tasks, one after the other, of S steps each. A commit sends the next task, or
 * claims it for the process that goes on. What may go wrong, FAULTS times in
 * all: a process dies anywhere; its answer to a claim or a commit is lost; it drops its task without a word; it is asked
 * to stop between two steps; its lease is believed to have lapsed while it lives; a message is lost or doubled. Once,
 * the store forgets all since a moment before (a power cut, a lagging replica promoted, a restored backup).
 *
 * `paid` is the account that the product does not keep: how often a step's effect happened. Each `#ifndef` guards one
 * check of the product; `check.py` takes each out in turn and wants an error.
 */
#ifndef W
#define W 2
#endif
#ifndef T
#define T 2
#endif
#ifndef S
#define S 1
#endif
#ifndef FAULTS
#define FAULTS 2
#endif

#define LAST (T - 1)

#define WAITING 0
#define QUEUED 1
#define RUNNING 2
#define COMMITTED 3
#define NOBODY 0

typedef Task {
  byte state;
  byte token;      /* of the claim that holds; 0 for none */
  byte nonce;      /* of the delivery that claimed it */
  byte owner;      /* the worker, from 1; NOBODY */
  byte recorded;   /* steps in the journal */
  bit begun;       /* a step is noted as begun, and neither recorded nor dropped */
  bit reserved;    /* that is the note of the step that comes next: it may begin without a word, and need not */
  byte messages;   /* in the queue; they are kept in the same server */
}
typedef Store {
  Task task[T];
  byte tokens;     /* the counter that tokens come from */
  byte doubt;      /* the ledger: steps that may have been done again */
}
Store store, saved;
bool is_saved = false, rewound = false;

/* What a worker's processes say in memory that outlives them. */
byte at_task[W];   /* the task, from 1; 0 for none */
byte at_nonce[W];
bit at_step[W];    /* a step has begun on the note that was reserved for it */
byte next_nonce[W]; /* of the claim that its commit may come with */
byte unsaved[W];   /* records and doubts that the store acknowledged since what it may go back to */
byte forgotten[W]; /* of those, what it has forgotten, and nobody has counted yet */

byte faults = 0;
byte paid[T], commits[T];
bool done = false;

#define holds(t) (store.task[t].token == mine && store.task[t].state == RUNNING && same_nonce(t))
#ifdef NO_NONCE
#define same_nonce(t) true
#else
#define same_nonce(t) (store.task[t].nonce == nonce)
#endif

/* Put so many steps in doubt. Whoever does so remembers it as long as the store may forget it. */
inline doubts(many) {
  store.doubt = store.doubt + many;
#ifndef NO_MEMORY_OF_DOUBT
  unsaved[0] = unsaved[0] + many
#endif
}

/* A claim is taken back: what was begun is in doubt, and the task is sent again. */
inline hand_back(t) {
#ifndef NO_DOUBT
  doubts(store.task[t].begun);
#endif
  store.task[t].begun = 0; store.task[t].reserved = 0; store.task[t].token = 0; store.task[t].nonce = 0; store.task[t].owner = NOBODY;
  store.task[t].state = QUEUED;
  store.task[t].messages++
}

/* The lowest number that nobody has: the product draws at random, of so many that none comes twice. */
#define in_use(n) (store.task[0].nonce == n || store.task[LAST].nonce == n || saved.task[0].nonce == n || saved.task[LAST].nonce == n || at_nonce[0] == n || at_nonce[W - 1] == n || next_nonce[0] == n || next_nonce[W - 1] == n)
inline fresh(n) {
  n = 1;
  do
  :: in_use(n) -> n++
  :: else -> break
  od
}

/* Who knows what the process is at does not count a note that is reserved and was not used. */
inline leave_unused(t) {
  if :: store.task[t].reserved && !at_step[me] -> store.task[t].begun = 0 :: else -> skip fi
}

/* A process dies: the worker's main process sees it at once, takes back its claims, and starts another. */
inline die() {
#ifndef NO_REAP
  if :: store.task[0].state == RUNNING && store.task[0].owner == me + 1 -> leave_unused(0); hand_back(0) :: else -> skip fi;
  if :: store.task[LAST].state == RUNNING && store.task[LAST].owner == me + 1 -> leave_unused(LAST); hand_back(LAST) :: else -> skip fi
#else
  skip
#endif
}

proctype Process(byte me) {
  byte t, mine, nonce, k, going; bit counted, spare; bool noted_since;

idle:
  atomic { t = 0; mine = 0; nonce = 0; k = 0; counted = 0; spare = 0; noted_since = 0; at_task[me] = 0; at_step[me] = 0; at_nonce[me] = 0; next_nonce[me] = 0; going = 0 }
  if
  :: atomic { store.task[0].messages > 0 -> store.task[0].messages--; t = 0 }
  :: atomic { store.task[LAST].messages > 0 -> store.task[LAST].messages--; t = LAST }
  :: done -> goto over
  fi;
  /* It says what it is about to claim before it claims it, so that no claim is ever of somebody who has not said so. */
  atomic { fresh(nonce); at_task[me] = t + 1; at_nonce[me] = nonce }
claim:
  atomic {
    if
    :: store.task[t].state == RUNNING && store.task[t].nonce == nonce -> mine = store.task[t].token  /* asked again */
#ifdef NO_CLAIM_CHECK
    :: store.task[t].state != COMMITTED && !(store.task[t].state == RUNNING && store.task[t].nonce == nonce) ->
#else
    :: store.task[t].state == QUEUED ->
#endif
       store.tokens++; mine = store.tokens;
       store.task[t].state = RUNNING; store.task[t].token = mine; store.task[t].nonce = nonce; store.task[t].owner = me + 1
    :: else -> mine = 0
    fi
  }
  if
  :: mine == 0 -> goto idle
  :: mine != 0 -> skip
  :: atomic { mine != 0 && faults < FAULTS -> faults++ } goto claim   /* the answer is lost */
  :: atomic { mine != 0 && faults < FAULTS -> faults++ } goto idle    /* it drops it without a word */
  :: atomic { mine != 0 && faults < FAULTS -> faults++; die() } goto idle
  fi;
begin:
  k = store.task[t].recorded;

  do
  :: k < S ->
     /* The note that a step begins; who has lost the claim counts it, for nobody else will. Where one is reserved the
        process says so in its memory, and whoever takes the claim back has counted it, or will. Not used soon, it is
        withdrawn by the note that comes instead. */
     atomic {
       if
       :: spare ->
#ifndef NO_STATED_STEP
          at_step[me] = 1;
#endif
          spare = 0; counted = 0
       :: holds(t) -> store.task[t].begun = 1; store.task[t].reserved = 0; spare = 0; counted = 0; noted_since = rewound
       :: !holds(t) && !spare -> doubts(1); counted = 1; noted_since = rewound
       fi
     }
     if
     :: skip
     :: atomic { faults < FAULTS -> faults++; die() } goto idle
     fi;
     paid[t]++;
     if
     :: skip
     /* Not in the moment in which the store forgets what it had noted: then nobody knows of the step. The docs say so. */
     :: atomic { faults < FAULTS && noted_since == rewound -> faults++; die() } goto idle
     fi;
     atomic {
#ifdef NO_RECORD_FENCE
       store.task[t].recorded = k + 1; store.task[t].begun = 0; unsaved[me]++; k++
#else
       if
       :: holds(t) ->
          store.task[t].recorded = k + 1; unsaved[me]++; k++; at_step[me] = 0; noted_since = rewound;
          if
          :: store.task[t].begun = 0; store.task[t].reserved = 0
          :: store.task[t].begun = 1; store.task[t].reserved = 1; spare = 1
          fi
       :: else ->
#ifndef NO_COUNT_OF_REFUSED
          /* Whoever took the claim counted the step by its note; a store that went back lost the note with the claim. */
          if
          :: rewound && !counted -> doubts(1)
          :: else -> skip
          fi;
#endif
          goto idle
       fi
#endif
     }
     /* Asked to stop, it hands back between two steps. */
     if
     :: skip
     :: atomic { faults < FAULTS -> faults++;
          if :: holds(t) -> leave_unused(t); hand_back(t) :: else -> skip fi }
        goto idle
     fi
  :: k >= S -> break
  od;

  if
  :: skip
  :: atomic { faults < FAULTS -> faults++; die() } goto idle
  fi;
  atomic { if :: t + 1 < T -> fresh(going); next_nonce[me] = going; going = 0 :: else -> skip fi }
commit:
  atomic {
    if
#ifdef NO_COMMIT_FENCE
    :: store.task[t].state != COMMITTED || true ->
#else
    :: holds(t) ->
#endif
       store.task[t].state = COMMITTED; store.task[t].owner = NOBODY; store.task[t].begun = 0; store.task[t].reserved = 0; commits[t]++;
       assert(commits[t] <= 1 + rewound);   /* a committed task never runs again, but where the store forgot that it did */
       if
       :: t + 1 < T && store.task[t + 1].state == WAITING -> store.task[t + 1].state = QUEUED; store.task[t + 1].messages++
       :: t + 1 < T && store.task[t + 1].state == WAITING -> /* or it goes on here */
          store.tokens++; going = store.tokens; store.task[t + 1].state = RUNNING; store.task[t + 1].token = going;
          store.task[t + 1].nonce = next_nonce[me]; store.task[t + 1].owner = me + 1
       :: else -> skip
       fi
#ifdef NO_NEXT_NONCE
    :: t + 1 < T && !holds(t) && store.task[t + 1].state == RUNNING ->
       going = store.task[t + 1].token; next_nonce[me] = store.task[t + 1].nonce
#else
    :: t + 1 < T && !holds(t) && store.task[t + 1].state == RUNNING && store.task[t + 1].nonce == next_nonce[me] ->
       going = store.task[t + 1].token   /* asked again */
#endif
    :: else -> going = 0   /* committed by this very token before, or refused */
    fi
  }
  if
  :: skip
  :: atomic { faults < FAULTS -> faults++ } goto commit   /* the answer is lost */
  :: atomic { going != 0 && faults < FAULTS -> faults++ } goto idle    /* it drops it without a word */
  :: atomic { going != 0 && faults < FAULTS -> faults++; die() } goto idle
  fi;
  if
  :: going == 0 -> goto idle
  :: else -> skip
  fi;
  atomic {
    t = t + 1; mine = going; nonce = next_nonce[me]; at_task[me] = t + 1; at_nonce[me] = nonce;
    counted = 0; spare = 0; noted_since = 0; going = 0; next_nonce[me] = 0
  }
  goto begin;

over:
  skip
}

/* A claim of a worker that none of its processes is at. */
#define is_ghost(t) (store.task[t].state == RUNNING && store.task[t].owner == me + 1 && !(at_task[me] == t + 1 && at_nonce[me] == store.task[t].nonce))

/* A heartbeat: the store's claims of a worker are held against what its processes say, and a rewind is counted. */
proctype Heartbeat(byte me) {
  do
  :: atomic { forgotten[me] > 0 ->
#ifndef NO_COUNT_OF_FORGOTTEN
       store.doubt = store.doubt + forgotten[me];
#endif
       forgotten[me] = 0 }
#ifndef NO_RECONCILE
  :: atomic { is_ghost(0) -> hand_back(0) }
  :: atomic { is_ghost(LAST) -> hand_back(LAST) }
#endif
  :: done && forgotten[me] == 0 -> break
  od
}

/* Wrong guesses, lost jobs; messages that are lost or doubled on their way. */
proctype Supervisor() {
  byte i = 0;
  do
  :: atomic { faults < FAULTS && store.task[0].state == RUNNING -> faults++; hand_back(0) }
  :: atomic { faults < FAULTS && store.task[LAST].state == RUNNING -> faults++; hand_back(LAST) }
#ifndef NO_RESEND
  :: atomic { store.task[0].state == QUEUED && store.task[0].messages == 0 -> store.task[0].messages++ }
  :: atomic { store.task[LAST].state == QUEUED && store.task[LAST].messages == 0 -> store.task[LAST].messages++ }
#endif
  :: atomic { faults < FAULTS && store.task[0].messages > 0 -> faults++; store.task[0].messages-- }
  :: atomic { faults < FAULTS && store.task[0].messages == 1 -> faults++; store.task[0].messages++ }
  :: atomic { store.task[LAST].state == COMMITTED && (rewound || !is_saved) -> done = true; break }
  od
}

inline copy(from, to) {
  i = 0;
  do
  :: i < T ->
     to.task[i].state = from.task[i].state; to.task[i].token = from.task[i].token;
     to.task[i].nonce = from.task[i].nonce; to.task[i].owner = from.task[i].owner;
     to.task[i].recorded = from.task[i].recorded; to.task[i].begun = from.task[i].begun;
     to.task[i].reserved = from.task[i].reserved;
     to.task[i].messages = from.task[i].messages;
     i++
  :: else -> break
  od;
  to.tokens = from.tokens; to.doubt = from.doubt
}

proctype Disk() {
  byte i;
#ifndef NO_REWIND
  if
  :: atomic { !done -> copy(store, saved); is_saved = true;
       i = 0;
       do :: i < W -> unsaved[i] = 0; i++ :: else -> break od }
     atomic { copy(saved, store); rewound = true;
       i = 0;
       do :: i < W -> forgotten[i] = forgotten[i] + unsaved[i]; unsaved[i] = 0; i++ :: else -> break od }
  :: done -> skip
  fi
#endif
}

init {
  byte i = 0;
  atomic {
    store.task[0].state = QUEUED; store.task[0].messages = 1;
    do :: i < W -> run Process(i); run Heartbeat(i); i++ :: else -> break od;
    run Supervisor(); run Disk()
  }
  /* Every run ends: where somebody waits for ever, the checker says so by itself (an invalid end state). */
  (_nr_pr == 1) ->
  /* Nothing is done again that the ledger does not have in doubt. */
  assert(paid[0] <= S + store.doubt && paid[LAST] <= S + store.doubt && paid[0] + paid[LAST] <= 2 * S + store.doubt + (T == 1 -> store.doubt : 0))
}
