"""Control: the messages between agent, job manager and ranks, and the protocol that carries a command to the job.

1. `command`: the values, from a processor map (`ResizeCommand`) to the plan of a change and its notices;
   `change_cost`: the expected cost of a change; `job_file`: the manager's description of its job; `strips`: the
   arithmetic of rows; `commits`: the files of committed states.
2. `messages`: a line, a request and its outcome.
3. `client`: the agent's end; `requests`: the job's end, the ledger of requests; `server`: its socket.

The state machines hold no socket and read no clock: ``tests/adversaries/protocol`` runs all of them with
connections that fail and a careless peer.
"""
