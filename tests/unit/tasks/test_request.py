"""A job's request keeps little, and tells handlers of Celery's signals what Celery's own does."""

import json
from typing import Any

import pytest
from celery.worker.request import Request
from kombu.message import Message

from runner.tasks.app import app
from runner.tasks.jobs import StoppableRequest, job

NOT_COMPARED = {"request_dict", "app", "task", "message", "on_ack", "on_reject"}
PROPERTIES = [name for name, one in vars(Request).items() if isinstance(one, property) and name not in NOT_COMPARED]
ARGUMENTS = {"run": "r-1", "branch": "main", "task": "write", "attempt": 1}


def _made(kind: type[Request], **properties: Any) -> Any:
    """A request of the least that a message has: that which a script of the store sends."""
    headers = {"task": job.name, "id": "r-1.1", "argsrepr": "()", "kwargsrepr": str(ARGUMENTS), "ignore_result": True}
    given = {"delivery_info": {"exchange": "", "routing_key": "celery"}, "priority": 0, **properties}
    text = json.dumps([[], ARGUMENTS, {}])
    about = {"headers": headers, "properties": given, "delivery_info": given["delivery_info"]}
    message = Message(text, content_type="application/json", content_encoding="utf-8", **about)
    message.accept = {"application/json"}
    return kind(message, app=app, hostname="here", task=job)


@pytest.mark.parametrize("properties", [{}, {"reply_to": "answers", "correlation_id": "c-1"}], ids=["none", "sent"])
def test_a_request_tells_what_celerys_own_does(properties: dict[str, Any]) -> None:
    # When a message is taken by Celery's own request, and by a job's
    theirs, ours = _made(Request, **properties), _made(StoppableRequest, **properties)
    # Then each attribute that a handler of a signal may read is the same
    told = {name: getattr(theirs, name, None) for name in PROPERTIES}
    assert {name: getattr(ours, name, None) for name in PROPERTIES} == told
    assert ours.info(safe=True) == theirs.info(safe=True)
    # And so is what Celery gives with a message, of its properties what others read, and of headers none
    given, found = theirs.request_dict, ours.request_dict
    assert {name: one for name, one in found.items() if name in given and name != "properties"} == {
        name: one for name, one in given.items() if name != "properties"
    }
    assert {name: found["properties"][name] for name in properties} == properties
