"""One daemon a host decides which job has which CPUs, and survives its own end.

Pure: `state` (allocations, as the records of the journal make them) and `sharing` (the CPUs of each job
when jobs share). Around them: `node` (`NodeLedger`: record, then kernel, then answer), `recovery` (the
first step after a start), `resize_requests` (asks jobs to shrink), `allocating`, `resizing` and `releasing`
(the verbs that begin, change and end an allocation), `handler` (permissions, and the answer to each
request), `protocol` (requests as lines), `server` (sockets), `commands` (its start on this host), `client`.
"""
