import time, json, pytest
@pytest.mark.parametrize("i", range(12))
def test_x(i, fleet, write_crew, client, redis):
    crew = write_crew("from runner import Crew, Task\ncrew = Crew(tasks=[Task(name='a', run=lambda ctx: 'x'), Task(name='b', run=lambda ctx: 'x')])\n")
    h = client.submit(crew, queue="q2")
    t0=time.time()
    w = fleet.start("--concurrency", "1", "--queue", "q2")
    t1=time.time()
    try:
        h.wait(10)
    except TimeoutError:
        print("TIMEOUT", {k: redis.type(k) for k in redis.keys()})
        for k in redis.keys():
            if redis.type(k)=="list": print(k, redis.lrange(k,0,-1))
        print([(e.type, e.at, e.fields) for e in h.events()])
        print(w.log.read_text()[-3000:])
        try:
            h.wait(60); print("later ok", time.time()-t1, [(e.type, e.at, e.fields) for e in h.events()])
        except TimeoutError: print("never")
        assert 0
    print("START", round(t1-t0,2), "RUN", round(time.time()-t1,2))
