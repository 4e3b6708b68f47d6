/*
 * How it is found out what a store that went back in time has forgotten: durable.pml takes that as known.
 *
 * W workers with one process each do T tasks, one after the other, of S steps each. What may go wrong, FAULTS times in
 * all: a process dies anywhere, also when its record is there and it has not heard; its answer to a claim or a commit is
 * lost; it drops its task without a word; its time is up in a step; it is asked to stop between two steps; it lets its task
 * go, and the message comes any time later; its lease is believed to have lapsed while it lives; a message is lost or doubled. Once, the store forgets all since a moment before (a power cut, a
 * lagging replica promoted, a restored backup); then each worker looks, at a moment of its own, and once more when all
 * have looked, what the store has of what it acknowledged: `look` is find_lost_writes.lua, line by line.
 *
 * `paid` is the account that the product does not keep: how often a step's effect happened. `check.py` takes
 * some of the checks out, one at a time, and wants an error. OTHERS limits the faults that are no releases. With NO_REWIND
 * a worker looks whenever it likes, and must find nothing.
 *
 * A worker's memory outlives its processes, and no worker is gone as a whole: what such a one was told, nobody knows. A note,
 * and what is remembered of it, are one event here; in the product the memory follows the note, and is read twice.
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
#ifndef OTHERS
#define OTHERS FAULTS   /* of these, at most so many that are no releases */
#endif
#ifndef N
#define N 7   /* claims in all; an assertion holds that there are no more */
#endif

#define LAST (T - 1)
#define BIT(k) (1 << (k))

#define WAITING 0
#define QUEUED 1
#define RUNNING 2
#define COMMITTED 3
#define NOBODY 0
#define COMMIT 1
#define RELEASE 2

typedef Task {
  byte state;
  byte token;      /* of the claim that holds, or that committed; 0 for none */
  byte owner;      /* the worker, from 1; NOBODY */
  byte journal;    /* the steps recorded, a bit for each */
  bit begun;       /* a step is noted as begun, and neither recorded nor dropped */
  byte messages;   /* in the queue; they are kept in the same server */
  byte found[N];   /* `claims`, and once committed `of`: how many steps each claim found, and 1; 0 if it never had it */
}
typedef Store {
  Task task[T];
  byte tokens;     /* the last token that was given */
  byte doubt;      /* the ledger: steps that may have been done again */
  byte counted[N]; /* of what each claim had begun, how much of that is in the ledger */
}
Store store, saved;
bool is_saved = false, rewound = false;

/* The clock: the next token is of now, whatever the store has forgotten. */
byte given = 0;

/* What a worker's processes say in memory that outlives them: what they are at... */
byte at_task[W];   /* the task, from 1; 0 for none */
byte at_token[W];  /* 0 while the claim is asked for */
/* ...and what was acknowledged to them, for each claim. */
typedef Memory {
  byte worker;     /* from 1; NOBODY */
  byte task;
  byte steps;      /* recorded, a bit for each */
  byte recorded;   /* how many */
  bit begun;       /* one was under way */
  byte ended;      /* by what the claim was given up */
}
Memory told[N];

/* What find_lost_writes.lua writes into the run. The store goes back but once, and nothing is found before. */
byte counted_steps[N];
bit counted_claim[N];
bit found_some;    /* `rewound`: something was found forgotten lately */
byte looks[W];

byte late = 0, late_task = 0;   /* a release that is still on its way, and of what */
byte faults = 0;
byte paid[T], commits[T];
bool done = false;

#define holds(t) (store.task[t].token == mine && store.task[t].state == RUNNING)

/* A claim is taken back: what was begun is in doubt, and the task is sent again. */
inline hand_back(t) {
#ifndef NO_DOUBT
  store.doubt = store.doubt + store.task[t].begun;
#ifndef NO_COUNTED
  store.counted[store.task[t].token] = store.counted[store.task[t].token] + store.task[t].begun;
#endif
#endif
  store.task[t].begun = 0; store.task[t].token = 0; store.task[t].owner = NOBODY;
  store.task[t].state = QUEUED;
  store.task[t].messages++
}

inline count_bits(bits, many) {
  many = (bits & 1) + ((bits >> 1) & 1) + ((bits >> 2) & 1)
}

/* A process dies: the worker's main process sees it at once, takes back its claims, and starts another. */
inline die() {
#ifndef NO_REAP
  if :: store.task[0].state == RUNNING && store.task[0].owner == me + 1 -> hand_back(0) :: else -> skip fi;
  if :: store.task[LAST].state == RUNNING && store.task[LAST].owner == me + 1 -> hand_back(LAST) :: else -> skip fi
#else
  skip
#endif
}

inline lets_go() {
  at_task[me] = 0; at_token[me] = 0; t = 0; mine = 0; k = 0; have = 0
}

/* Who was given a claim, and did not hear of it, asks again, and it stands: it is of the same delivery. */
inline claim() {
  if
  :: mine > 0 && holds(t) -> skip
#ifdef NO_CLAIM_CHECK
  :: store.task[t].state != COMMITTED && !(mine > 0 && holds(t)) ->
#else
  :: store.task[t].state == QUEUED ->
#endif
#ifdef NO_CLOCK
     mine = store.tokens + 1;
#else
     mine = given + 1;
#endif
     assert(mine < N);
     given = (mine > given -> mine : given); store.tokens = mine;
     store.task[t].state = RUNNING; store.task[t].token = mine; store.task[t].owner = me + 1;
#ifndef NO_CLAIMS
     count_bits(store.task[t].journal, k); store.task[t].found[mine] = k + 1; k = 0
#endif
  :: else -> mine = 0
  fi;
  have = (mine != 0 -> store.task[t].journal : 0)
}

inline hears() {
  if
  :: mine == 0 -> lets_go()
  :: else -> at_token[me] = mine;
     told[mine].worker = me + 1; told[mine].task = t; told[mine].steps = 0; told[mine].recorded = 0;
     told[mine].begun = 0; told[mine].ended = 0
  fi
}

inline skip_recorded() {
  do
  :: k < S && (have & BIT(k)) -> k++
  :: else -> break
  od;
  skip
}

proctype Process(byte me) {
  byte t, mine, k, have;

idle:
  /* It says what it is about to claim before it claims it, so that no claim is ever of somebody who has not said so.
     (Which worker is the first to claim is all the same.) */
  if
  :: atomic { store.task[0].messages > 0 && (given > 0 || me == 0) -> store.task[0].messages--; t = 0 }
  :: atomic { T > 1 && store.task[LAST].messages > 0 -> store.task[LAST].messages--; t = LAST }
  :: atomic { done -> goto over }
  fi;
asks:
  if
  :: d_step { at_task[me] = t + 1; claim(); hears(); skip_recorded() }
  :: d_step { faults < OTHERS -> faults++; at_task[me] = t + 1; claim() };    /* the answer is lost */
     if
     :: goto asks
     :: d_step { lets_go() }                                                  /* or it drops it without a word */
     :: d_step { die(); lets_go() }
     fi
  fi;

  do
  :: atomic { mine == 0 -> goto idle }
  :: d_step { mine > 0 && k < S ->
     /* The note that a step begins; who has lost the claim counts it, for nobody else will. */
       told[mine].begun = 1;
       if
       :: holds(t) -> store.task[t].begun = 1
#ifndef NO_COUNT_OF_REFUSED
       :: else -> store.doubt++; store.counted[mine]++
#else
       :: else -> skip
#endif
       fi;
       paid[t]++ };
     if
     :: d_step { faults < OTHERS -> faults++; die(); lets_go() }
     :: d_step { faults < OTHERS && holds(t) -> faults++;   /* it dies when its record is there, and it has not heard */
          store.task[t].journal = store.task[t].journal | BIT(k); store.task[t].begun = 0; die(); lets_go() }
     :: d_step { faults < OTHERS && holds(t) -> faults++;   /* its time is up: what it was at is in doubt, and it comes again */
          hand_back(t); told[mine].ended = RELEASE; lets_go() }
     :: d_step {
          if
#ifdef NO_RECORD_FENCE
          :: true ->
#else
          :: holds(t) ->
#endif
             store.task[t].journal = store.task[t].journal | BIT(k); store.task[t].begun = 0;
             told[mine].begun = 0; told[mine].steps = told[mine].steps | BIT(k); told[mine].recorded++; k++;
             skip_recorded()
#ifndef NO_RECORD_FENCE
          :: else -> lets_go()
#endif
          fi }
     fi
  :: d_step { mine > 0 && k >= S ->
       if
#ifdef NO_COMMIT_FENCE
       :: true ->
#else
       :: holds(t) ->
#endif
          store.task[t].state = COMMITTED; store.task[t].token = mine; store.task[t].owner = NOBODY;
          store.task[t].begun = 0; commits[t]++; told[mine].ended = COMMIT;
          assert(commits[t] <= 1 + rewound);   /* a committed task never runs again, but where the store forgot that it did */
          if
          :: t + 1 < T && store.task[t + 1].state == WAITING -> store.task[t + 1].state = QUEUED; store.task[t + 1].messages++
          :: else -> skip
          fi
       :: else -> skip   /* committed by this very token before, or refused */
       fi };
     if
     :: d_step { lets_go() }
     :: atomic { faults < OTHERS -> faults++ }   /* the answer is lost, and it asks again */
     fi
  /* It dies; asked to stop, it hands back between two steps; or its message comes when it comes. */
  :: d_step { mine > 0 && faults < OTHERS -> faults++; die(); lets_go() }
  :: d_step { mine > 0 && faults < FAULTS -> faults++;
       if :: holds(t) -> hand_back(t); told[mine].ended = RELEASE :: else -> skip fi;
       lets_go() }
  :: d_step { mine > 0 && faults < FAULTS && late == 0 -> faults++; late = mine; late_task = t; lets_go() }
  od;

over:
  skip
}

/* A claim of a worker that none of its processes is at. */
#define is_ghost(t) (store.task[t].state == RUNNING && store.task[t].owner == me + 1 && !(at_task[me] == t + 1 && (at_token[me] == 0 || at_token[me] == store.task[t].token)))

/* find_lost_writes.lua, of claim c, as far as step bits may be kept in a number; in `verdict` it leaves 1 for unclear, 2 for forgotten. */
#define done_of(t) (store.task[t].state == COMMITTED)
inline look_back(c, known) {
  verdict = 0; own = 0; following = 0; first = 0; last = 0; later = 0; again = 0; lost_ = 0; certain = 0; many = 0; open = 0;
  u = told[c].task;
  held = (store.task[u].state == RUNNING && store.task[u].token == c);
  i = 1;
  do
  :: i < N ->
     if
     :: store.task[u].found[i] > 0 ->
        if :: own > 0 && following == 0 -> following = store.task[u].found[i] :: else -> skip fi;
        if :: i == c -> own = store.task[u].found[i] :: else -> skip fi;
        if :: first == 0 -> first = i :: else -> skip fi;
        last = i
     :: else -> skip
     fi;
     if
     :: i > c && told[i].worker == me + 1 && told[i].task == u -> later = i; again = again | told[i].steps
     :: else -> skip
     fi;
     i++
  :: else -> break
  od;
  theirs = (store.task[u].token > 0 -> store.task[u].token : last);
  if
  :: !(done_of(u) && store.task[u].token == c) ->
     lost_ = (told[c].ended == COMMIT) || (told[c].ended > 0 && held) || (told[c].ended == 0 && store.tokens < c) ||
       (done_of(u) && store.task[u].token < c);
#ifndef NO_UNHEARD
     lost_ = lost_ || (first > 0 && own == 0);
#endif
     redone = 0; fewer = 0; cut = S; at_step = 0;
#ifndef NO_FEWER
     fewer = (following > 0 && following < own + told[c].recorded);
#endif
#ifndef NO_REDONE
     redone = (first > 0 && own == 0);   /* whoever did it since, and whoever has it now */
     cut = (fewer -> following - own : S);   /* what a store forgets is the newest */
#endif
     whole = (following > 0 && following >= own + told[c].recorded);
     follows = (theirs > c);
     certain = (lost_ || fewer || known || found_some);
     i = 0;
     do
     :: i < S ->
        if :: told[c].steps & BIT(i) -> at_step++ :: else -> skip fi;
        if
        :: (told[c].steps & BIT(i)) && !whole && !(counted_steps[c] & BIT(i)) ->
           missing = !done_of(u) && !(store.task[u].journal & BIT(i));
           if
           :: follows && !certain && !missing -> open = 1
           :: else ->
              if
              :: missing || redone || at_step > cut || (done_of(u) && !follows) || (follows && ((again & BIT(i)) || (theirs != later && following == 0))) ->
                 many++; counted_steps[c] = counted_steps[c] | BIT(i)
              :: else -> skip
              fi
           fi
        :: else -> skip
        fi;
        i++
     :: else -> break
     od;
     /* A record of which its process did not hear before it died is none that was broken off. */
     count_bits(store.task[u].journal, i);
     i = (following > 0 -> following : i + 1);
#ifdef NO_UNHEARD_RECORD
     unheard_of = 0;
#else
     unheard_of = (own > 0 && i > own + told[c].recorded);
#endif
#ifdef NO_BEGUN
     pending = 0;
#else
     pending = (!held && told[c].begun > store.counted[c] + unheard_of);
#endif
     was_noted = (many > 0 -> 0 : store.task[u].begun);
#ifndef NO_NOTE_AGAIN
     /* What is under way in it, or was when its process died, or was refused: it is to be noted again. */
     if :: held && told[c].begun && !unheard_of -> was_noted = 1 :: else -> skip fi;
#endif
     if :: held -> store.task[u].begun = was_noted :: else -> skip fi;
     if
     :: many == 0 && !pending && (counted_claim[c] || !lost_) -> verdict = open
     :: else ->
        assert(rewound);   /* a store that has all is believed */
        store.doubt = store.doubt + many;
        if
        :: pending -> store.doubt++; store.counted[c]++
        :: else -> skip
        fi;
        /* That a note is missing alone says nothing: it may never have come. */
        found_some = found_some || many > 0 || (lost_ && !counted_claim[c]) || certain;
        counted_claim[c] = counted_claim[c] || lost_;
        verdict = 2
     fi
  :: else -> skip
  fi
}

/* A worker looks at all that its processes were told; and again at what was unclear, if something else was forgotten. */
inline look() {
#ifndef NO_LOOK
  c = 1; some = 0; unclear = 0;
  do
  :: c < N ->
     if
     :: told[c].worker == me + 1 ->
        look_back(c, 0);
        if :: verdict == 2 -> some = 1 :: verdict == 1 -> unclear = unclear | BIT(c) :: else -> skip fi
     :: else -> skip
     fi;
     c++
  :: else -> break
  od;
  c = 1;
  do
  :: some && c < N ->
     if :: unclear & BIT(c) -> look_back(c, 1) :: else -> skip fi;
     c++
  :: else -> break
  od;
  c = 0; i = 0; u = 0; some = 0; unclear = 0; verdict = 0; own = 0; following = 0; first = 0; last = 0; later = 0;
  again = 0; theirs = 0; many = 0; cut = 0; at_step = 0; lost_ = 0; was_noted = 0; redone = 0; fewer = 0; whole = 0; follows = 0; certain = 0; missing = 0; pending = 0; held = 0; open = 0; unheard_of = 0
#else
  skip
#endif
}

/* A heartbeat: the store's claims of a worker are held against what its processes say, and what was told with what is there. */
proctype Heartbeat(byte me) {
  byte c, i, u, verdict, own, following, first, last, later, again, theirs, many, cut, at_step;
  byte unclear; bit lost_, was_noted, redone, fewer, whole, follows, certain, missing, pending, held, open, some, unheard_of;
  do
  :: d_step { rewound && looks[me] == 0 -> look(); looks[me] = 1 }
  :: d_step { rewound && looks[me] == 1 && looks[0] > 0 && looks[W - 1] > 0 -> look(); looks[me] = 2 }
#ifdef NO_REWIND
  :: d_step { told[1].worker > 0 -> look() }   /* for no reason: all is there, and believed */
#endif
#ifndef NO_RECONCILE
  :: d_step { is_ghost(0) -> look(); if :: is_ghost(0) -> hand_back(0) :: else -> skip fi }
  :: d_step { T > 1 && is_ghost(LAST) -> look(); if :: is_ghost(LAST) -> hand_back(LAST) :: else -> skip fi }
#endif
  :: done && (!rewound || looks[me] == 2) -> break
  od
}

/* Wrong guesses, lost jobs; messages that are lost, doubled or late on their way. */
proctype Supervisor() {
  do
  :: atomic { faults < OTHERS && store.task[0].state == RUNNING -> faults++; hand_back(0) }
  :: atomic { T > 1 && faults < OTHERS && store.task[LAST].state == RUNNING -> faults++; hand_back(LAST) }
#ifndef NO_RESEND
  :: atomic { store.task[0].state == QUEUED && store.task[0].messages == 0 -> store.task[0].messages++ }
  :: atomic { T > 1 && store.task[LAST].state == QUEUED && store.task[LAST].messages == 0 -> store.task[LAST].messages++ }
#endif
  :: atomic { late > 0 ->
       if
#ifdef NO_RELEASE_FENCE
       :: store.task[late_task].state != COMMITTED -> hand_back(late_task)
#else
       :: store.task[late_task].state == RUNNING && store.task[late_task].token == late -> hand_back(late_task)
#endif
       :: else -> skip
       fi;
       late = 0; late_task = 0 }
  :: atomic { faults < OTHERS && store.task[0].messages > 0 -> faults++; store.task[0].messages-- }
  :: atomic { faults < OTHERS && store.task[0].messages == 1 -> faults++; store.task[0].messages++ }
  :: atomic { store.task[LAST].state == COMMITTED && (rewound || !is_saved) -> done = true; break }
  od
}

inline copy(from, to) {
  i = 0;
  do
  :: i < T ->
     to.task[i].state = from.task[i].state; to.task[i].token = from.task[i].token;
     to.task[i].owner = from.task[i].owner;
     to.task[i].journal = from.task[i].journal; to.task[i].begun = from.task[i].begun;
     to.task[i].messages = from.task[i].messages;
     j = 0;
     do :: j < N -> to.task[i].found[j] = from.task[i].found[j]; j++ :: else -> break od;
     j = 0; i++
  :: else -> break
  od;
  to.tokens = from.tokens; to.doubt = from.doubt;
  do :: j < N -> to.counted[j] = from.counted[j]; j++ :: else -> break od;
  i = 0; j = 0
}

/* What was saved and cannot come back is nothing that states differ in. */
inline forget_saved() {
  i = 0;
  do
  :: i < T ->
     saved.task[i].state = 0; saved.task[i].token = 0; saved.task[i].owner = 0;
     saved.task[i].journal = 0; saved.task[i].begun = 0; saved.task[i].messages = 0;
     j = 0;
     do :: j < N -> saved.task[i].found[j] = 0; j++ :: else -> break od;
     j = 0; i++
  :: else -> break
  od;
  saved.tokens = 0; saved.doubt = 0;
  do :: j < N -> saved.counted[j] = 0; j++ :: else -> break od;
  i = 0; j = 0
}

proctype Disk() {
  byte i, j;
#ifndef NO_REWIND
  if
  :: d_step { !done -> copy(store, saved); is_saved = true }
     d_step { copy(saved, store); forget_saved(); rewound = true }
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
