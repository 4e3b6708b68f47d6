"""All keys in Redis, in one place: `KEYS` says what each holds and who removes it.

A *home* is a store: ``runner:{p0}``, that of a server; in a Redis Cluster (`cluster`) each of its partitions has one of
its own, such as ``runner:{p0.3}``. What is between the braces decides the slot, and every key below carries it, so a
script touches one slot. ``runner:{cluster}:partitions`` has the tags of a Redis Cluster's partitions, with blanks
between them. A *state home* is where `RedisProvider` keeps the states of one location: ``runner:{states:PREFIX}``.

The broker's lists are ``runner:pN:QUEUE``, with messages of jobs for workers that read protocol N, and
``runner:tN:QUEUE``, of tasks that mostly wait; in a cluster they begin with the home: ``runner:pN:{p0.3}QUEUE``.

States do not expire: they are kept until they are pruned, as files are. All keys of a run expire ``keep`` after its
last branch is over (7 days by default), and live on when one is resumed.
"""

import hashlib
import re
from collections.abc import Callable, Collection
from functools import cache, lru_cache

from runner.core.jobs import ref
from runner.core.plan import THREAD, queue_for
from runner.providers.redis.protocol import FIRST, POOLS, PROTOCOL, READS

CLUSTER_TAG = "cluster"  #: of what is known of a Redis Cluster as a whole

LONGEST_REF = 64
DIGEST = "#"  #: stands for the branch in a reference that is a digest; no branch is called so

KEYS: dict[str, tuple[str, str]] = {
    "runs_key": ("zset", "{home}:runs"),  # run ids by time of creation; trimmed after a run expires
    "active_key": ("zset", "{home}:active"),  # run ids of which a branch is running; leaves when none is
    "expiring_key": ("zset", "{home}:expiring"),  # run ids by the time their keys expire; trimmed with `runs`
    # jobs sent and not claimed, by the time they were sent or last looked at; a claim removes one
    "queued_key": ("zset", "{home}:queued"),
    "due_key": ("zset", "{home}:due"),  # tasks that wait for their next attempt, by its time
    "outbox_key": ("zset", "{home}:outbox"),  # jobs to send where the broker is not this Redis; sending removes one
    "workers_key": ("zset", "{home}:workers"),  # worker ids by the time their lease lapses; reaping removes one
    # what a worker says of itself; removed when it is reaped or leaves
    "worker_key": ("hash", "{home}:worker:{worker}"),
    "claims_key": ("hash", "{home}:claims:{worker}"),  # a worker's claims: job reference -> token, process; likewise
    "leader_key": ("string", "{home}:leader"),  # the supervisor that leads; expires in seconds
    # set while a process looks for keys of another type (`overwritten`); expires in seconds
    "mending_key": ("string", "{home}:mending"),
    "monitors_key": ("string", "{home}:monitors"),  # set while a Flower watches; expires in seconds
    # the models' clients that workers have imported; expires a week after the last did
    "clients_key": ("set", "{home}:clients"),
    # set while workers are known to need processes; expires a week after the last found that out
    "processes_key": ("string", "{home}:processes"),
    "partition_key": ("string", "{home}:partition"),  # which of several stores this one is (`partitions`); kept
    # a packed crew: data, how many running runs use it, their plans as JSON; kept while any run that may be resumed
    # needs it
    "bundle_key": ("hash", "{home}:bundle:{sha}"),
    # runs that were submitted together: how many are active, how many there are to be, why no more are accepted; kept
    # for as long as the last of them
    "batch_key": ("hash", "{home}:batch:{batch}"),
    "batch_runs_key": ("zset", "{home}:batch:{batch}:runs"),  # their ids by their place among the inputs; likewise
    # those that are over, newest 1,000 or so, for who waits; likewise
    "batch_ended_key": ("stream", "{home}:batch:{batch}:ended"),
    # -- a run: each expires with it
    # the run: current branch and its status, how many branches are live, crew, bundle, inputs, options, counters,
    # protocol; of lines of the ledger the tokens that were cached, written to a cache, or of reasoning
    "run_key": ("hash", "{home}:run:{run_id}"),
    "plan_key": ("string", "{run}:plan"),  # the plan as JSON, of a run without a bundle
    # calls of models by branch, task, agent and model (a JSON list): how many are paid, replayed, in doubt; tokens
    "ledger_key": ("hash", "{run}:ledger"),
    # calls of models by their time, where only so many may be made in a minute; expires a minute after the last
    "pace_key": ("zset", "{run}:pace:{name}"),
    "branches_key": ("set", "{run}:branches"),  # the run's branches
    # what happened: the newest 2,000 or so, and 50 more for each task that was ever planned; laid out as `stream`
    # says
    "events_key": ("stream", "{run}:events"),
    "copy_key": ("stream", "{run}:copy"),  # the same, within the script that ends the run
    # the branch: status, sequence, tasks left and done, head checkpoint; outputs that were gone; where it left its
    # parent, what it does itself, what was edited, inputs that differ
    "branch_key": ("hash", "{run}:branch:{name}"),
    # committed outputs by task, each with its sequence and token, the rest of it deflated (`packing`) if that is
    # shorter; immutable
    "outputs_key": ("hash", "{branch_key}:outputs"),
    # the commit log: each commit's sequence, task and read set; stored under this name by every version
    "commit_log_key": ("list", "{branch_key}:order"),
    "shared_key": ("hash", "{branch_key}:shared"),  # what the tasks of a plan that grows share: version, texts
    "waits_key": ("hash", "{branch_key}:waits"),  # tasks with several prerequisites -> how many are committed
    # tasks in flight: queued, running, delayed, held or failed; also those that a resume set aside: its plan does not
    # do them now
    "open_key": ("set", "{branch_key}:open"),
    "checkpoints_key": ("zset", "{branch_key}:checkpoints"),  # checkpoint ids by sequence, at most `max_checkpoints`
    # checkpoint id -> parent, trigger, task, sequence; pruned with the zset
    "lineage_key": ("hash", "{branch_key}:lineage"),
    # a task in flight: state, attempt, token, worker; removed by the commit
    "task_key": ("hash", "{branch_key}:task:{name}"),
    # its recorded steps; removed by the commit, unless a checkpoint was written within the task: then kept as
    # `journals` says
    "journal_key": ("hash", "{branch_key}:journal:{name}"),
    # names of steps by the sequence of the first checkpoint that was written within the task since they were
    # recorded; likewise
    "steps_key": ("zset", "{branch_key}:steps:{name}"),
    # tasks that are done and whose journal is kept, by the sequence of their commit: removed with the last checkpoint
    # before that; expires as late after a commit as a run after its end
    "journals_key": ("zset", "{branch_key}:journals"),
    # -- the states of a location: there `branches`, `checkpoints` and `lineage` have no run before them, and hold the
    # branches with checkpoints (pruning removes one), the checkpoint ids by the number of their entry (pruned), and of
    # each of them number, digest, sizes, parent and branch (pruned with it)
    # number -> what is new in a checkpoint since its parent; goes when no checkpoint needs it
    "entries_key": ("hash", "{home}:entries"),
    # entries 100 K to 100 K + 99 -> how many hold it, on which it stands; likewise
    "chains_key": ("hash", "{home}:chains:{bucket}"),
    "counter_key": ("string", "{home}:counter"),  # the newest number; removed with the last checkpoint
    # the newest checkpoint of each run in flight, by the end of its lease; gone when the last lease is over
    "held_key": ("zset", "{home}:held"),
}
"""Key builders by name, with the type of what each key holds; what that is, and for how long, stands beside. There is
one schema: the scripts get the builders as Lua functions of the same name (`scripts`), and `overwritten` has the types.
"""

TEMPLATES = {name: template for name, (_, template) in KEYS.items()}


def home(tag: str = "p0") -> str:
    """The prefix of one store; ``tag`` is what decides its slot."""
    return f"runner:{{{tag}}}"


HOME = home()
"""That of a server which is no cluster's."""


def home_of(client: object) -> str:
    """That of the store which a client, or a line of it, speaks with."""
    return getattr(client, "home", HOME)


_QUEUE = re.compile(r"(?:runner:[pt]\d+:)?(?:\{p\d+\.\d+\})?", re.ASCII)


def queue_in(home: str, name: str) -> str:
    """How the queue called so is called in a store: what decides the slot of a Redis Cluster's stands before it."""
    return name if home == HOME else home.removeprefix("runner:") + name


def queue_of(name: str, protocol: int = PROTOCOL) -> str:
    """Where jobs for workers of a protocol wait, of those who serve the queue called so; see `queue_for`, too."""
    return name if protocol == FIRST else f"runner:p{protocol}:{name}"


def name_of(queue: str) -> str:
    """What a queue is called: the inverse of `queue_of` and `queue_in`."""
    return _QUEUE.sub("", queue, count=1)


def served(name: str, pools: Collection[str] = POOLS) -> list[str]:
    """The queues of all protocols that we read, for what these pools serve."""
    others = [queue_of(name, protocol) for protocol in READS]
    waiting = [queue_for(queue, THREAD) for queue in others if queue_for(queue, THREAD) != queue]
    return (others if "process" in pools else []) + (waiting if THREAD in pools else [])


def state_home(prefix: str) -> str:
    """Return the prefix of the keys of one location's states."""
    return home(state_tag(prefix))


def state_tag(prefix: str) -> str:
    """Return the hash tag, which decides the slot of one location's states."""
    return f"states:{prefix}"


def key(name: str, /, **parts: str) -> str:
    """Return the key called ``name``: ``key("run_key", home=..., run_id=...)``."""
    return TEMPLATES[name].format(**parts)


@lru_cache(maxsize=256)
def run_key(run_id: str, home: str = HOME) -> str:
    """Return the key of the run's own hash."""
    return key("run_key", home=home, run_id=run_id)


@lru_cache(maxsize=256)
def branch_key(run_id: str, branch: str, home: str = HOME) -> str:
    """Return the key of the branch's own hash."""
    return key("branch_key", run=run_key(run_id, home), name=branch)


def queued_ref(run_id: str, branch: str, task: str) -> str:
    """How the index of sent jobs names one: `ref`, or where that is long, a digest of it (see ``lib/queued.lua``)."""
    whole = ref(run_id, branch, task)
    if len(whole.encode()) <= LONGEST_REF:
        return whole
    digest = hashlib.sha1(f"{branch}|{task}".encode(), usedforsecurity=False).hexdigest()
    return ref(run_id, DIGEST, digest[:20])


def unref(reference: str) -> tuple[str, str, str]:
    """Return the run, branch and task of a reference: the inverse of `ref`."""
    run_id, branch, task = reference.split("|", 2)
    return run_id, branch, task


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """What the keys of each template look like, and the parts of each. A key looks like one of them at most."""
    return {name: re.compile(_pattern(name), re.DOTALL) for name in TEMPLATES}


def _pattern(name: str) -> str:
    """Ids and branches hold no colon; a task's name may be anything."""
    slots: dict[str, str | Callable[[], str]] = {
        "home": r"(?P<home>runner:\{[^}]*\})",
        "run": lambda: _pattern("run_key"),
        "branch_key": lambda: _pattern("branch_key"),
        "name": "(?P<branch>[^:|]+)" if name == "branch_key" else "(?P<task>.+)",
    }
    pieces = re.split(r"\{(\w+)\}", TEMPLATES[name])
    for i in range(1, len(pieces), 2):
        slot = slots.get(pieces[i], f"(?P<{pieces[i]}>[^:]+)")
        pieces[i] = slot if isinstance(slot, str) else slot()
    return "".join(pieces)
